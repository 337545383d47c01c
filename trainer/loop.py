"""The trainer process: hears of sessions and decisions, announces batches, trains, tells.

One thread decides; readers, the heartbeat and long work have threads of their own, so that sessions
and decisions are heard during a step. Made by `trainer/bootstrap.py`.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infra.kafka.producer import Producer
from infra.kafka.reader_thread import ReaderThread
from infra.process import ready
from schemas.records import Record, Trajectory
from schemas.topics import CONTROL
from trainer.inbox import Inbox
from trainer.recovery.control_state import ControlState
from trainer.roles.device import TrainerDevice
from trainer.roles.gang_errors import check_gang
from trainer.roles.heartbeat import Heartbeat, Vitals
from trainer.roles.roles import TrainerRoles
from trainer.steps.dataloader import Dataloader
from trainer.steps.reports import Reports
from trainer.steps.sequence import StepSequence
from trainer.work import Work

_log = logging.getLogger(__name__)
_WAIT_S = 0.05
"""Longest time until work that ended is noticed."""


@dataclass(slots=True, kw_only=True)
class Loop:
    """Runs until the last step is done or it is asked to end."""

    inbox: Inbox
    readers: Sequence[ReaderThread]
    producer: Producer
    control_state: ControlState
    roles: TrainerRoles
    dataloader: Dataloader
    device: TrainerDevice
    steps: StepSequence
    work: Work
    reports: Reports
    heartbeat: Heartbeat
    vitals: Vitals
    ranks: int
    now_ms: Callable[[], int]

    def run(self, stop: threading.Event) -> None:
        """Raises what a part of it raised."""
        try:
            for reader in self.readers:
                reader.start()
            step, version = self.steps.origin.step, self.vitals.version
            ready(
                _log, "trainer %s is ready at step %d, version %s", self.roles.worker, step, version
            )
            while not (stop.is_set() or (self.work.idle and self.steps.all_done)):
                self._receive()
                self._advance()
            self.steps.finish()
            self.device.leave()
        except BaseException:
            self.vitals.state = "failed"
            raise
        finally:
            self._close()

    def _receive(self) -> None:
        for received in self.inbox.take(_WAIT_S):
            record, now_ms = received.record, self.now_ms()
            if isinstance(record, Trajectory):
                place = received.partition, received.offset
                self._send(self.dataloader.add(record, *place, now_ms))
            else:
                self.control_state.apply(record, received.offset)
                self.roles.apply(record)
                self.dataloader.apply(record, now_ms)
                self.steps.apply(record)

    def _advance(self) -> None:
        """One round: what is over is taken in, what is due is begun."""
        check_gang(self.roles, None, self.ranks)
        self._send(self.dataloader.expirations(self.now_ms()))
        if self.work.collect():
            self.device.rest()
            self.device.advance()
        if self.work.idle:
            self.steps.advance()
        self.inbox.brake(not self.dataloader.wants_more(self.steps.origin.step))

    def _send(self, records: Sequence[Record]) -> None:
        for record in records:
            self.producer.send(CONTROL.name, record)

    def _close(self) -> None:
        """Nothing more is read, then nothing more is said."""
        self.inbox.brake(False)
        for reader in self.readers:
            reader.close()
        self.work.close()
        self.heartbeat.close()
        self.reports.close()
        self.producer.close()
