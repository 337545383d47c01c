"""The loop of the trainer process that leads: it reads sessions, announces batches and trains.

One thread decides. Readers, the heartbeat and long work (a step, a checkpoint, moving memory) have
threads of their own, so records are also read while a step is trained. Made by
`trainer/bootstrap.py`.
"""

import logging
import threading
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

from infra.kafka.reader_thread import ReaderThread
from infra.process import ready
from schemas.records import Trajectory
from schemas.topics import TRAJECTORIES
from trainer.recovery.control_state import ControlState
from trainer.roles.device import TrainerDevice
from trainer.roles.process import TrainerProcess
from trainer.steps.dataloader import Dataloader
from trainer.steps.reports import Reports
from trainer.steps.sequence import StepSequence

_log = logging.getLogger(__name__)
_WAIT_S = 0.05
"""Longest time until finished work is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """The loop and the parts it drives."""

    process: TrainerProcess
    sessions: ReaderThread
    """Reads `trajectories` into the inbox."""
    control_state: ControlState
    dataloader: Dataloader
    device: TrainerDevice
    steps: StepSequence
    reports: Reports

    def run(self, stop: threading.Event) -> None:
        """Run until the last step is done or `stop` is set. Raise the error of any part."""
        work, worker = self.process.work, self.process.roles.worker
        with closing(self.reports), self.process.running(self.sessions):
            step, version = self.steps.origin.step, self.process.status.version
            ready(_log, "trainer %s is ready at step %d, version %s", worker, step, version)
            while not (stop.is_set() or (work.idle and self.steps.over)):
                self._receive()
                self._advance()
            self.steps.finish()
            self.device.leave()

    def _receive(self) -> None:
        for received in chain.from_iterable(self.process.inbox.take(_WAIT_S)):
            record, now_ms = received.record, self.process.now_ms()
            if received.topic == TRAJECTORIES.name:
                if isinstance(record, Trajectory):
                    place, trace = (received.partition, received.offset), received.headers
                    self.process.send(*self.dataloader.add(record, *place, now_ms, trace))
            else:
                self.control_state.apply(record, received.offset)
                self.process.roles.apply(record)
                self.dataloader.apply(record, now_ms)
                self.steps.apply(record)

    def _advance(self) -> None:
        """Collect finished work and begin what is due."""
        self.process.check_gang()
        self.process.send(*self.dataloader.expirations(self.process.now_ms()))
        # A change of role comes before the next step: the device may no longer be this worker's.
        self.device.advance()
        if self.process.work.idle:
            self.steps.advance()
        self.process.inbox.hold(not self.dataloader.wants_more(self.steps.origin.step))
