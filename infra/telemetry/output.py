"""The ways in which a process shows its metrics: Prometheus text over HTTP, and an OTLP collector.

Called at the start of every process; neither is on the path of its work.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.network.addresses import address_of
from seamlessflow.infra.settings import ProcessSettings
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.telemetry.metrics_export import metrics_export

_log = logging.getLogger(__name__)
TARGETS = "metrics"
"""Directory with the addresses of processes, as Prometheus reads them (`file_sd_configs`)."""


class MetricsOutput:
    """Server of `/metrics` and export of a process, as far as the settings ask for them."""

    def __init__(
        self, settings: ProcessSettings, metrics: Metrics, service: str, instance: str
    ) -> None:
        """Begin both. Raises `SettingsRejected` if the port is taken."""
        self._target = settings.data_dir / TARGETS / f"{service}-{instance}.json"
        self._end_serving: Callable[[], None] | None = None
        host, port = settings.telemetry.metrics_host, settings.telemetry.metrics_port
        if port is not None:
            try:
                served, self._end_serving = metrics.serve(host, port)
            except OSError as error:
                variable = "SEAMLESSFLOW_TELEMETRY__METRICS_PORT"
                raise SettingsRejected(
                    variable, f"{address_of(host, port)}: {error.strerror}"
                ) from error
            _log.info("metrics at http://%s/metrics", address_of(host, served))
            if port == 0:
                labels = {"service": service, "process": instance}
                _write_target(self._target, address_of(host, served), labels)
        self._export = metrics_export(settings.telemetry, metrics, service, instance)

    def close(self) -> None:
        """Stop to serve, and export once more."""
        if self._end_serving is not None:
            self._target.unlink(missing_ok=True)
            self._end_serving()
        if self._export is not None:
            self._export.close()


def _write_target(path: Path, address: str, labels: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps([{"targets": [address], "labels": labels}])
    path.write_text(text + "\n", encoding="utf-8")
