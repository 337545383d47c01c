"""Sinks of metrics besides `control`: a CSV file always; TensorBoard, W&B and OTLP if set.

Each row is flushed at once, so that a killed process leaves all steps that it completed.
"""

import csv
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from infra.errors import SeamlessFlowError
from infra.telemetry.metrics import Metrics
from infra.telemetry.metrics_export import MetricsExport, metrics_export
from trainer.metrics.names import METRICS
from trainer.settings import TrainerSettings

_COLUMNS = ("step", "version", "at_ms", *(name for name in METRICS if "*" not in name), "more")


class SinkUnavailable(SeamlessFlowError):
    """A sink that is set, but whose library is not installed."""

    def __init__(self, setting: str, package: str) -> None:
        self.setting = setting
        self.package = package
        super().__init__(f"{setting} is set, but {package} is not installed: pip install {package}")


class Sink(Protocol):
    """A destination of metrics. Called by the loop's thread once per step."""

    def write(self, step: int, version: int, at_ms: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of a step. May block briefly; raise the errors of the library."""

    def close(self) -> None:
        """Finish writing; no call follows."""


class CsvFile:
    """A file with one row per step. Metrics of families are in the column `more`, as name=value."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists() or not path.stat().st_size
        self._file = path.open("a", newline="", encoding="utf-8")
        self._rows = csv.DictWriter(self._file, _COLUMNS, restval="")
        if new:
            self._rows.writeheader()

    def write(self, step: int, version: int, at_ms: int, metrics: Mapping[str, float]) -> None:
        columns = {name: f"{value:.6g}" for name, value in metrics.items() if name in _COLUMNS}
        more = [f"{name}={value:g}" for name, value in metrics.items() if name not in _COLUMNS]
        place = {"step": step, "version": version, "at_ms": at_ms, "more": " ".join(more)}
        self._rows.writerow({**columns, **place})
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """Event files of TensorBoard in a directory."""

    def __init__(self, directory: Path) -> None:
        board = _imported("torch.utils.tensorboard", "trainer.tensorboard_dir", "tensorboard")
        self._writer = board.SummaryWriter(str(directory))

    def write(self, step: int, version: int, at_ms: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step, at_ms / 1000)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of a Weights & Biases project."""

    def __init__(self, project: str, policy: str) -> None:
        wandb = _imported("wandb", "trainer.wandb_project", "wandb")
        self._run = wandb.init(project=project, name=policy)

    def write(self, step: int, version: int, at_ms: int, metrics: Mapping[str, float]) -> None:
        self._run.log({**metrics, "version": version}, step=step)

    def close(self) -> None:
        self._run.finish()


class Exported:
    """Gauges exported by OTLP to the collector of all processes."""

    def __init__(self, export: MetricsExport, metrics: Metrics) -> None:
        self._export = export
        self._metrics = metrics

    def write(self, step: int, version: int, at_ms: int, metrics: Mapping[str, float]) -> None:
        self._metrics.gauge("seamlessflow_trainer_steps").set(step + 1)
        for name, value in metrics.items():
            self._metrics.gauge("seamlessflow_trainer_metric", metric=name).set(value)

    def close(self) -> None:
        self._export.close()


def open_sinks(settings: TrainerSettings) -> list[Sink]:
    """Return the sinks that the settings name. Raise `SinkUnavailable`."""
    sinks: list[Sink] = []
    if settings.trainer.tensorboard_dir is not None:
        sinks.append(TensorBoard(settings.trainer.tensorboard_dir))
    if settings.trainer.wandb_project is not None:
        sinks.append(WeightsAndBiases(settings.trainer.wandb_project, settings.run.policy))
    metrics = Metrics()
    export = metrics_export(settings.telemetry, metrics, "trainer", settings.trainer.worker)
    if export is not None:
        sinks.append(Exported(export, metrics))
    return [CsvFile(settings.metrics_csv), *sinks]


def _imported(module: str, setting: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SinkUnavailable(setting, package) from error
