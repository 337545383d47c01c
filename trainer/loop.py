"""The trainer's loop: it reads sessions, announces batches and lets the gang train them.

It has no device: the gang's first rank computes (`trainer/link.py`). One thread decides. Readers,
the heartbeat and long work (a step, a checkpoint) each have their own thread. So the trainer also
reads records while a step is trained. Made by `trainer/bootstrap.py`.
"""

import logging
import threading
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.process import ready
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import TRAJECTORIES
from seamlessflow.trainer.link import GangBackend
from seamlessflow.trainer.mixing.topics import PoolTopics
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.roles.gang import GangBroken
from seamlessflow.trainer.roles.parts import ProcessParts, Wake
from seamlessflow.trainer.steps.dataloader import Dataloader
from seamlessflow.trainer.steps.reports import Reports
from seamlessflow.trainer.steps.sequence import StepSequence

_log = logging.getLogger(__name__)
_WAIT_S = 0.2
"""Longest delay until the loop notices an expired group, an evaluation's end or a signal to stop.
Everything else wakes the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """The loop and the parts it drives."""

    process: ProcessParts
    sessions: ReaderThread
    """Reads `trajectories` into the inbox."""
    control_state: ControlState
    dataloader: Dataloader
    pools: PoolTopics
    gang: GangBackend
    steps: StepSequence
    reports: Reports

    def run(self, stop: threading.Event) -> None:
        """Run until the last step is done or `stop` is set. Raise any part's error."""
        work = self.process.work
        policy = self.process.settings.run.policy
        with (
            closing(self.reports),
            closing(self.pools),
            closing(self.steps),
            self.process.running(self.sessions, end=self.gang.close),
        ):
            step = self.steps.origin.step
            version = self.process.status.version
            ready(_log, "trainer of %s is ready at step %d, version %s", policy, step, version)
            while not (stop.is_set() or (work.idle and self.steps.over)):
                self._receive()
                self._advance()
            self.steps.finish()
            if self.steps.over:
                # The run's end must be on the log before the ranks leave their roles.
                self.process.producer.settle(stop.is_set)
            self.gang.end(finished=self.steps.over)
            self.process.status.ending = True

    def _receive(self) -> None:
        items = self.process.inbox.take(_WAIT_S)
        for received in chain.from_iterable(item for item in items if not isinstance(item, Wake)):
            record = received.record
            now_ms = self.process.now_ms()
            if received.topic == TRAJECTORIES.name:
                if isinstance(record, Trajectory):
                    further = self.dataloader.add(
                        record, received.partition, received.offset, now_ms, received.headers
                    )
                    self.process.send(*further)
            else:
                self.control_state.apply(record, received.offset)
                self.process.gang.apply(record)
                self.dataloader.apply(record, now_ms)
                self.steps.apply(record)

    def _advance(self) -> None:
        """Collect finished work and begin the work that is due."""
        self.process.gang.check(self.process.settings.trainer.ranks)
        if self.gang.lost:
            # If a call failed before the rank ended, `finish` raises its error, which says why.
            self.process.work.finish()
            raise GangBroken(self.gang.worker, self.gang.lost)
        self.process.send(*self.dataloader.expirations(self.process.now_ms()))
        if self.process.work.collect():
            self.steps.advance()
        self.process.inbox.hold(not self.dataloader.wants_more(self.steps.origin.step))
