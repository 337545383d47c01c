"""MLflow as a sink. A separate thread sends rows, since a request may take minutes.

While MLflow is away, rows wait in memory, so an outage neither ends nor stalls a run. The first
failure is logged, and so is the outage's end. A restarted trainer goes on with its earlier MLflow
run; a file beside the metrics keeps the run's id. Called by `sinks.py`.
"""

import json
import logging
import os
import queue
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Queue

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.trainer.metrics.trackers import SampleText, TrackedRun, imported
from seamlessflow.trainer.sinks import mlflow_package

_log = logging.getLogger(__name__)
_DEFAULTS = {
    # By default the library tries a request for four minutes and more.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    # By default the library reports its use to its makers.
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""Values for the library's variables that the environment does not set."""
_MOST_ROWS = 10_000
_RETRY_S = 30.0
_END_S = 20.0
"""Time that the trainer's end leaves to send waiting rows."""
_ILLEGAL = re.compile(r"[^\w./ -]")
_LONGEST_NAME = 250
_LONGEST_PARAMETER = 6_000
_PARAMETERS_A_CALL = 100


class Mlflow:
    """A run in an MLflow experiment."""

    def __init__(
        self, uri: str, experiment: str, tracked: TrackedRun, retry_s: float = _RETRY_S
    ) -> None:
        """Pause `retry_s` after a failure. Raise `SinkUnavailable` and `SettingsRejected`."""
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        self._library = imported("mlflow", "trainer.mlflow_uri", mlflow_package(uri))
        try:
            self._client = self._library.MlflowClient(tracking_uri=uri)
        except self._library.exceptions.MlflowException as error:
            raise SettingsRejected("trainer.mlflow_uri", f"{uri}: {error}") from error
        self._experiment = experiment
        self._tracked = tracked
        self._retry_s = retry_s
        self._run = ""
        self._away = False
        self._calls: Queue[Callable[[], object] | None] = Queue(_MOST_ROWS)
        """Calls that the thread still has to make."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._send_all, name="mlflow", daemon=True)
        self._thread.start()

    def write(self, step: int, version: int, at_ms: int, metrics: Mapping[str, float]) -> None:
        made = self._library.entities.Metric
        values = {**metrics, "version": version}
        row = [made(legal_name(name), float(value), at_ms, step) for name, value in values.items()]
        self._put(lambda: self._client.log_batch(self._run, metrics=row), f"row of step {step}")

    def write_samples(self, step: int, samples: Sequence[SampleText]) -> None:
        lines = "".join(json.dumps(sample._asdict()) + "\n" for sample in samples)
        name = f"samples/step-{step:06d}.jsonl"
        self._put(lambda: self._client.log_text(self._run, lines, name), f"table of step {step}")

    def _put(self, call: Callable[[], object], what: str) -> None:
        try:
            self._calls.put_nowait(call)
        except queue.Full:
            _log.warning("the %s is not sent to MLflow: too many wait", what)

    def close(self) -> None:
        self._ending.set()
        with suppress(queue.Full):  # MLflow is away, and the thread ends at its next failure
            self._calls.put_nowait(None)
        self._thread.join(_END_S)
        if self._away or self._thread.is_alive():
            _log.warning("the last rows were not sent to MLflow; the CSV file has them")

    def _send_all(self) -> None:
        while (call := self._calls.get()) is not None:
            # After an attempt that began before the end, one more follows at once.
            last = self._ending.is_set()
            while not self._sent(call):
                if last:
                    return
                last = self._ending.wait(self._retry_s)
        if self._run:
            self._attempted(lambda: self._client.set_terminated(self._run))

    def _sent(self, call: Callable[[], object]) -> bool:
        def send() -> None:
            self._run = self._run or self._begun()
            call()

        return self._attempted(send)

    def _attempted(self, call: Callable[[], object]) -> bool:
        """Make a call; return whether it was successful."""
        try:
            call()
        except Exception as error:  # of any library below it; the row is kept and sent again
            if not self._away:
                _log.warning("MLflow takes no metrics, so they wait: %s", error)
            self._away = True
            return False
        if self._away:
            _log.info("MLflow takes metrics again")
        self._away = False
        return True

    def _begun(self) -> str:
        """Return the run's id from the file, or a new run's."""
        client = self._client
        former = self._tracked.known_id()
        if former and self._active(former):
            client.update_run(former, status="RUNNING")
            self._send_parameters(former)
            return former
        experiment = client.get_experiment_by_name(self._experiment)
        number = (
            experiment.experiment_id if experiment else client.create_experiment(self._experiment)
        )
        run: str = client.create_run(number, run_name=self._tracked.name).info.run_id
        self._tracked.keep_id(run)
        self._send_parameters(run)
        return run

    def _send_parameters(self, run: str) -> None:
        """Send the settings. MLflow lets no parameter change, so a changed one is sent as a tag."""
        made = self._library.entities
        present = self._client.get_run(run).data.params
        wanted = {
            legal_name(name): value[:_LONGEST_PARAMETER]
            for name, value in self._tracked.parameters.items()
        }
        params = [made.Param(name, value) for name, value in wanted.items() if name not in present]
        tags = [
            made.RunTag(name, value)
            for name, value in wanted.items()
            if present.get(name, value) != value
        ]
        for first in range(0, max(len(params), len(tags)), _PARAMETERS_A_CALL):
            part = slice(first, first + _PARAMETERS_A_CALL)
            self._client.log_batch(run, params=params[part], tags=tags[part])

    def _active(self, run: str) -> bool:
        """Return whether MLflow has a run, and it was not deleted."""
        try:
            return bool(self._client.get_run(run).info.lifecycle_stage == "active")
        except self._library.exceptions.MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise


def legal_name(name: str) -> str:
    """Return a metric's name as MLflow takes it: a relative path without `.` and `..`."""
    parts = _ILLEGAL.sub("_", name)[:_LONGEST_NAME].split("/")
    return "/".join(part if part.strip(".") else "_" for part in parts)
