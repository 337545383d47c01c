"""MLflow as a sink. Rows are sent by a thread of their own, since a request may take minutes.

While MLflow is away they wait in memory, so that it neither ends nor stalls a run; the first
failure is logged, and the end of it. A trainer that is started again goes on with the run of
before, whose id stands in a file beside the metrics. Called by `sinks.py`.
"""

import logging
import os
import queue
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import Any

from infra.errors import SettingsRejected
from trainer.metrics.library import imported
from trainer.sinks import mlflow_package

_log = logging.getLogger(__name__)
_DEFAULTS = {
    # The library would try a request for four minutes and more.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    # It would report its use to its makers.
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""Variables of the library, where the environment has none."""
_MOST_ROWS = 10_000
_RETRY_S = 30.0
_END_S = 20.0
"""Limit for what waits at the end of the trainer."""
_ILLEGAL = re.compile(r"[^\w./ -]")
_LONGEST_NAME = 250


class Mlflow:
    """A run of an MLflow experiment."""

    def __init__(
        self, uri: str, experiment: str, policy: str, run_file: Path, retry_s: float = _RETRY_S
    ) -> None:
        """`run_file` has the id of the run, once there is one; `retry_s` is the pause after a
        failure. Raise `SinkUnavailable` and `SettingsRejected`.
        """
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
        self._library = imported("mlflow", "trainer.mlflow_uri", mlflow_package(uri))
        try:
            self._client = self._library.MlflowClient(tracking_uri=uri)
        except self._library.exceptions.MlflowException as error:
            raise SettingsRejected("trainer.mlflow_uri", f"{uri}: {error}") from error
        self._experiment = experiment
        self._policy = policy
        self._run_file = run_file
        self._retry_s = retry_s
        self._run = ""
        self._away = False
        self._rows: Queue[list[Any] | None] = Queue(_MOST_ROWS)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._send_all, name="mlflow", daemon=True)
        self._thread.start()

    def write(self, step: int, version: int, at_ms: int, metrics: Mapping[str, float]) -> None:
        made = self._library.entities.Metric
        values = {**metrics, "version": version}
        row = [made(legal_name(name), float(of), at_ms, step) for name, of in values.items()]
        try:
            self._rows.put_nowait(row)
        except queue.Full:
            _log.warning("the row of step %d is not sent to MLflow: too many wait", step)

    def close(self) -> None:
        self._ending.set()
        with suppress(queue.Full):  # then it is away, and the thread ends at its next failure
            self._rows.put_nowait(None)
        self._thread.join(_END_S)
        if self._away or self._thread.is_alive():
            _log.warning("the last rows were not sent to MLflow; the CSV file has them")

    def _send_all(self) -> None:
        while (row := self._rows.get()) is not None:
            # An attempt that began before the end is followed by one more, at once.
            last = self._ending.is_set()
            while not self._sent(row):
                if last:
                    return
                last = self._ending.wait(self._retry_s)
        if self._run:
            self._attempted(lambda: self._client.set_terminated(self._run))

    def _sent(self, row: list[Any]) -> bool:
        def send() -> None:
            self._run = self._run or self._begun()
            self._client.log_batch(self._run, metrics=row)

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
        """Return the id of the run: that of the file, or a new one's."""
        client = self._client
        known = self._run_file.read_text("utf-8").strip() if self._run_file.is_file() else ""
        if known and self._active(known):
            client.update_run(known, status="RUNNING")
            return known
        found = client.get_experiment_by_name(self._experiment)
        number = found.experiment_id if found else client.create_experiment(self._experiment)
        run: str = client.create_run(number, run_name=self._policy).info.run_id
        self._run_file.write_text(run, encoding="utf-8")
        return run

    def _active(self, run: str) -> bool:
        """Return whether MLflow has a run, and it was not deleted."""
        try:
            return bool(self._client.get_run(run).info.lifecycle_stage == "active")
        except self._library.exceptions.MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise


def legal_name(name: str) -> str:
    """Return the name of a metric as MLflow takes it: a relative path without `.` and `..`."""
    parts = _ILLEGAL.sub("_", name)[:_LONGEST_NAME].split("/")
    return "/".join(part if part.strip(".") else "_" for part in parts)
