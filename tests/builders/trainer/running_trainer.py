"""A trainer in a thread of a test."""

import threading

from infra.settings import TelemetrySettings
from infra.telemetry.metrics import Metrics
from infra.telemetry.tracing import telemetry
from tests.builders.trainer.scripted_scheduler import TIMEOUT_S
from trainer.bootstrap import build
from trainer.settings import TrainerSettings


class RunningTrainer:
    """A trainer in a thread of the test."""

    def __init__(self, settings: TrainerSettings) -> None:
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self._settings = settings
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(TIMEOUT_S)
        if self.error is not None:
            raise self.error
        assert not self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()
        self.join()

    def _run(self) -> None:
        try:
            traces = telemetry(TelemetrySettings(), "trainer", "w")
            build(self._settings, traces, Metrics()).run(self._stop)
        except BaseException as error:
            self.error = error
