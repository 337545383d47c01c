"""The trainer process of a rank that does not lead: takes and gives up its device, trains when
told.

It hears of steps on `control`; what there is to compute the leader tells it in the process group.
Made by `trainer/bootstrap.py`.
"""

import logging
import threading
from dataclasses import dataclass

from infra.kafka.producer import Producer
from infra.kafka.reader_thread import ReaderThread
from infra.process import ready
from schemas import records as r
from schemas.records import Record
from trainer.backends.fsdp_backend import FsdpBackend
from trainer.inbox import Inbox
from trainer.roles.device import TrainerDevice
from trainer.roles.gang_errors import check_gang
from trainer.roles.heartbeat import Heartbeat, Vitals
from trainer.roles.roles import TrainerRoles
from trainer.roles.usage import Usage
from trainer.work import Work

_log = logging.getLogger(__name__)
_WAIT_S = 0.05


@dataclass(slots=True, kw_only=True)
class Follower:
    """Runs until the run is finished or it is asked to end."""

    inbox: Inbox
    reader: ReaderThread
    producer: Producer
    roles: TrainerRoles
    device: TrainerDevice
    backend: FsdpBackend
    work: Work
    heartbeat: Heartbeat
    vitals: Vitals
    usage: Usage
    steps: int
    ranks: int
    started: r.StepStarted | None = None
    finished: bool = False

    def run(self, stop: threading.Event) -> None:
        """Raises what a part of it raised, and `GangBroken`."""
        try:
            self.reader.start()
            ready(_log, "trainer %s is ready to follow", self.roles.worker)
            while not (stop.is_set() or (self.work.idle and self.finished)):
                for received in self.inbox.take(_WAIT_S):
                    self._apply(received.record)
                self._advance()
            self.work.finish()
            self.device.leave()
        except BaseException:
            self.vitals.state = "failed"
            raise
        finally:
            self._close()

    def _apply(self, record: Record) -> None:
        self.roles.apply(record)
        match record:
            case r.StepStarted():
                self.started = record
            case r.RunFinished() if record.steps >= self.steps:
                self.finished = True

    def _advance(self) -> None:
        check_gang(self.roles, None, self.ranks)
        if self.work.collect():
            self.device.rest()
            self.device.advance()
        started = self.started
        if self.work.idle and started and self.roles.may_start(started, started.step):
            check_gang(self.roles, started, self.ranks)
            self.started = None
            self.vitals.state = "training"
            self.usage.now("training", self.device.now_ms())
            self.work.begin(self.backend.follow, lambda _: None)

    def _close(self) -> None:
        self.reader.close()
        self.work.close()
        self.heartbeat.close()
        self.producer.close()
