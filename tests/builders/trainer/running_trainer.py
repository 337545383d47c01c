"""A trainer and the training process of its only rank, in threads of a test."""

import threading
from collections.abc import Callable

from seamlessflow.infra.settings import TelemetrySettings
from seamlessflow.infra.telemetry.instruments import Instruments
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.telemetry.tracing import telemetry
from seamlessflow.trainer import bootstrap
from seamlessflow.trainer.ranks import bootstrap as ranks
from seamlessflow.trainer.roles.gang import GangBroken, TrainerGone
from seamlessflow.trainer.settings import TrainerSettings
from tests.builders.trainer.scripted_scheduler import TIMEOUT_S


class RunningTrainer:
    """Both, with the settings of the environment."""

    def __init__(self, settings: TrainerSettings) -> None:
        self._stop = threading.Event()
        self.errors: list[BaseException] = []
        self._settings = settings
        self._threads = [
            threading.Thread(target=self._run, args=[part], daemon=True)
            for part in (self._trainer, self._rank)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait for both; raise the first error, but not that of the one that lost the other."""
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert self.errors or not thread.is_alive()
        if self.errors:
            causes = [
                error for error in self.errors if not isinstance(error, GangBroken | TrainerGone)
            ]
            raise (causes or self.errors)[0]

    def stop(self) -> None:
        """Ask both to end, and wait."""
        self._stop.set()
        self.join()

    def _trainer(self) -> None:
        instruments = Instruments(telemetry(TelemetrySettings(), "trainer", "w"))
        bootstrap.build(self._settings, instruments, self._stop.is_set).run(self._stop)

    def _rank(self) -> None:
        ranks.build(self._settings, Metrics(), self._stop.is_set).run(self._stop)

    def _run(self, part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException as error:
            self.errors.append(error)
            # The other one may wait for this one.
            self._stop.set()
