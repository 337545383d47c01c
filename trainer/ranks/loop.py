"""The loop of a training process: it takes, uses and gives up its worker's devices.

A gang's first rank trains a step when the trainer calls. The other ranks begin when `control` says
so; their work comes through torch's process group (`trainer/backends/gang.py`). Made by
`trainer/ranks/bootstrap.py`.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from seamlessflow.infra.process import ready
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.trainer.ranks.process import RankProcess, TrainerDevice
from seamlessflow.trainer.ranks.service import RankService
from seamlessflow.trainer.roles.gang import TrainerGone
from seamlessflow.trainer.roles.parts import Wake

_log = logging.getLogger(__name__)
_WAIT_S = 1.0
"""The loop's longest wait. All else wakes the loop; only a signal to stop must wait for this."""
_STOP_TOO_S = 2.0
_LAST_CALLS_S = 20.0
"""Time for the trainer, which is asked to stop at the same time, to save its state."""


@dataclass(slots=True, kw_only=True)
class RankLoop:
    """The loop and the parts it drives."""

    process: RankProcess
    device: TrainerDevice
    follow: Callable[[], int]
    """Takes part in a step until the trainer rests. Returns the step that is over, if the first
    rank named it. Called in the work thread."""
    service: RankService | None
    """The trainer's calls; None for a worker without the first rank."""
    end: Callable[[], None]
    """Ends the further ranks."""
    started: r.StepStarted | None = None
    """The newest start of a step that this worker has not followed yet."""
    finished: bool = False
    """True if the last step of the run is on `control`."""
    _stop_asked: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Run until the run is finished, the trainer has ended or `stop` is set.

        Raise `GangBroken`, `GangMismatch`, `TrainerGone` and the error of any part.
        """
        process = self.process
        with process.running(end=self._close):
            worker = process.roles.worker
            ready(_log, "training process %s is ready, version %s", worker, process.status.version)
            while not self._over(stop):
                for item in process.inbox.take(_WAIT_S):
                    for received in () if isinstance(item, Wake) else item:
                        self._apply(received.record)
                self._advance()
            process.work.finish()
            self.device.leave()
            # A launcher that ends the trainer also stops this process, at about the same time.
            if self.service is not None and self.service.lost and not stop.wait(_STOP_TOO_S):
                raise TrainerGone(self.service.lost)

    def _close(self) -> None:
        if self.service is not None:
            self.service.close()
        if self.process.weights is not None:
            self.process.weights.close()
        self.end()

    def _over(self, stop: threading.Event) -> bool:
        if not self.process.work.idle:
            return False
        if self.service is None:
            return stop.is_set() or self.finished
        if self.service.finished or self.service.ended:
            return True
        if not stop.is_set():
            return False
        self._stop_asked = self._stop_asked or time.monotonic()
        return bool(self.service.lost) or time.monotonic() - self._stop_asked > _LAST_CALLS_S

    def _apply(self, record: Record) -> None:
        self.process.fold(record)
        match record:
            case r.StepStarted() if self.process.gang.counts(record):
                self.started = record
            case r.RunFinished() if self.process.gang.concerns(record.policy):
                self.finished |= record.steps >= self.process.settings.run.steps

    def _advance(self) -> None:
        process = self.process
        service = self.service
        ranks = process.settings.trainer.ranks
        process.gang.check(ranks)
        if service is not None and service.lost and not (service.ended or self._stop_asked):
            raise service.failure or TrainerGone(service.lost)
        # A change of role comes before the next step: the devices may no longer be this worker's.
        self.device.advance()
        if not process.work.idle:
            return
        if service is not None:
            if service.asked:
                process.work.begin(self.follow, lambda _: None)
            return
        started = self.started
        if started and process.roles.may_start(started):
            process.gang.check(ranks, started)
            self.started = None
            process.enter("training", "waiting")
            # The start may name a step of a trainer that died. Its successor first executes steps
            # again, and then trains the next step under the same start.
            gang_epoch = started.gang_epoch
            process.work.begin(self.follow, lambda step: process.roles.note_over(gang_epoch, step))
