"""The loop of a trainer process whose rank does not lead: it takes, uses and gives up its device.

It reads from `control` when a step starts; what to compute the leader sends through the process
group of torch (`trainer/backends/gang.py`). Made by `trainer/bootstrap.py`.
"""

import logging
import threading
from dataclasses import dataclass
from itertools import chain

from infra.process import ready
from schemas import records as r
from schemas.records import Record
from trainer.backends.fsdp_backend import FsdpBackend
from trainer.roles.device import TrainerDevice
from trainer.roles.process import TrainerProcess

_log = logging.getLogger(__name__)
_WAIT_S = 0.05
"""Longest time until finished work is noticed."""


@dataclass(slots=True, kw_only=True)
class Follower:
    """The loop and the parts it drives."""

    process: TrainerProcess
    device: TrainerDevice
    backend: FsdpBackend
    started: r.StepStarted | None = None
    """The newest start of a step that this rank has not followed yet."""
    finished: bool = False
    """True if the last step of the run is on `control`."""

    def run(self, stop: threading.Event) -> None:
        """Run until the run is finished or `stop` is set.

        Raise `GangBroken`, `GangMismatch` and the error of any part.
        """
        work, inbox = self.process.work, self.process.inbox
        with self.process.running():
            ready(_log, "trainer %s is ready to follow", self.process.roles.worker)
            while not (stop.is_set() or (work.idle and self.finished)):
                for received in chain.from_iterable(inbox.take(_WAIT_S)):
                    self._apply(received.record)
                self._advance()
            work.finish()
            self.device.leave()

    def _apply(self, record: Record) -> None:
        self.process.roles.apply(record)
        match record:
            case r.StepStarted() if self.process.roles.counts(record):
                self.started = record
            case r.RunFinished() if record.steps >= self.process.settings.run.steps:
                self.finished = True

    def _advance(self) -> None:
        process = self.process
        process.check_gang()
        self.device.advance()
        started = self.started
        if process.work.idle and started and process.roles.may_start(started, started.step):
            process.check_gang(started)
            self.started = None
            process.enter("training", "training")
            process.work.begin(self.backend.follow, lambda _: None)
