"""Metric sinks besides `control`: always a CSV file; TensorBoard, W&B, MLflow and OTLP if set.

Each row is flushed at once, so that a killed process leaves all steps that it completed.
"""

import csv
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.trainer.metrics.mlflow import Mlflow
from seamlessflow.trainer.metrics.names import METRICS
from seamlessflow.trainer.metrics.trackers import SampleText, TrackedRun, flattened, imported
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.sinks import board_writer

_COLUMNS = ("step", "version", "at_ms", *(name for name in METRICS if "*" not in name), "more")


class Sink(Protocol):
    """A destination for metrics. The loop's thread calls it, a row per step and evaluation."""

    def write(self, step: int, version: int, at_ms: int, metrics: Mapping[str, float]) -> None:
        """Write a row. May block briefly; raise the library's errors.

        An evaluation's `step` counts the steps that made its weights, so a row may have a lower
        `step` than the last one.
        """

    def write_samples(self, step: int, samples: Sequence[SampleText]) -> None:
        """Write a table with texts from sessions that a step trained, if the sink shows texts."""

    def close(self) -> None:
        """Finish writing; no call follows."""


class CsvFile:
    """A file with a row for each step and evaluation; `samples.jsonl` beside it has sample texts.

    Families' metrics are in the column `more`, as name=value. So are metrics for which an earlier
    release's file has no column.
    """

    def __init__(self, path: Path) -> None:
        self._texts = path.with_name("samples.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists() or not _cut_after_last_line(path)
        self._file = path.open("a", newline="", encoding="utf-8")
        self._columns = _COLUMNS if new else _header(path)
        self._rows = csv.DictWriter(self._file, self._columns, restval="")
        if new:
            self._rows.writeheader()

    def write(self, step: int, version: int, at_ms: int, metrics: Mapping[str, float]) -> None:
        names = self._columns
        columns = {name: f"{value:.6g}" for name, value in metrics.items() if name in names}
        more = [f"{name}={value:g}" for name, value in metrics.items() if name not in names]
        place = {"step": step, "version": version, "at_ms": at_ms, "more": " ".join(more)}
        self._rows.writerow({**columns, **place})
        self._file.flush()

    def write_samples(self, step: int, samples: Sequence[SampleText]) -> None:
        with self._texts.open("a", encoding="utf-8") as file:
            for sample in samples:
                file.write(json.dumps({"step": step, **sample._asdict()}) + "\n")

    def close(self) -> None:
        self._file.close()


def _cut_after_last_line(path: Path) -> int:
    """Remove a row that a full disk cut off, so the next one has its own line; return the size."""
    with path.open("r+b") as file:
        size = file.read().rfind(b"\n") + 1
        return file.truncate(size)


def _header(path: Path) -> tuple[str, ...]:
    """Return a file's columns, if it is one of ours."""
    with path.open(newline="", encoding="utf-8") as file:
        columns = tuple(next(csv.reader(file), ()))
    return columns if {"step", "version", "at_ms", "more"} <= {*columns} else _COLUMNS


class TensorBoard:
    """TensorBoard's event files in a directory.

    `tensorboardX` writes them if it is installed. Otherwise torch does, with the package
    `tensorboard`, which also has a server.
    """

    def __init__(self, directory: Path) -> None:
        """Raise `SinkUnavailable`."""
        module = board_writer() or "tensorboardX"
        board = imported(module, "trainer.tensorboard_dir", "tensorboardX")
        # Without it, two writers that begin in the same second would share a file name.
        ending = f".{secrets.token_hex(4)}"
        self._writer = board.SummaryWriter(str(directory), filename_suffix=ending)

    def write(self, step: int, version: int, at_ms: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step, at_ms / 1000)
        self._writer.flush()

    def write_samples(self, step: int, samples: Sequence[SampleText]) -> None:
        for number, sample in enumerate(samples):
            # Markdown shows an indented text as it is.
            text = f"{sample.prompt}{sample.answer}".replace("\n", "\n    ")
            head = f"{sample.session}: reward {sample.reward:g}"
            self._writer.add_text(f"samples/{number}", f"{head}\n\n    {text}", step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run in a Weights & Biases project; a restarted trainer goes on with it."""

    def __init__(self, project: str, tracked: TrackedRun) -> None:
        """Raise `SinkUnavailable` and `SettingsRejected`."""
        setting = "trainer.wandb_project"
        self._library: Any = imported("wandb", setting, "wandb")
        run_id = tracked.known_id() or secrets.token_hex(8)
        errors = self._library.errors
        try:
            self._run = self._library.init(
                project=project, name=tracked.name, id=run_id, resume="allow"
            )
        except (errors.UsageError, errors.AuthenticationError) as error:
            remedy = "set WANDB_API_KEY, or WANDB_MODE=offline"
            raise SettingsRejected(setting, f"{project}: {error} ({remedy})") from error
        self._run.config.update(dict(tracked.parameters), allow_val_change=True)
        tracked.keep_id(run_id)
        # W&B's own step count refuses rows for earlier steps, and joins two rows for one step.
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, version: int, at_ms: int, metrics: Mapping[str, float]) -> None:
        self._run.log({**metrics, "version": version, "step": step})

    def write_samples(self, step: int, samples: Sequence[SampleText]) -> None:
        table = self._library.Table(columns=list(SampleText._fields), data=list(map(list, samples)))
        self._run.log({"samples": table, "step": step})

    def close(self) -> None:
        self._run.finish()


class Gauges:
    """The trainer's metrics as gauges, shown where all processes show their metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def write(self, step: int, version: int, at_ms: int, metrics: Mapping[str, float]) -> None:
        if not any(name.partition("/")[0] == "eval_version" for name in metrics):
            self._metrics.gauge("seamlessflow_trainer_steps").set(step)
        for name, value in metrics.items():
            self._metrics.gauge("seamlessflow_trainer_metric", metric=name).set(value)

    def write_samples(self, step: int, samples: Sequence[SampleText]) -> None:
        pass

    def close(self) -> None:
        pass


def open_sinks(
    settings: TrainerSettings, metrics: Metrics, sections: Mapping[str, Any] | None = None
) -> list[Sink]:
    """Return the sinks that the settings name. They show the `sections` as the run's parameters.

    Raise `SinkUnavailable` and `SettingsRejected`.
    """
    sinks: list[Sink] = []
    trainer = settings.trainer
    parameters = flattened(sections or {})

    def tracked(ending: str) -> TrackedRun:
        return TrackedRun(settings.run_name, parameters, settings.metrics_csv.with_suffix(ending))

    if trainer.tensorboard_dir is not None:
        sinks.append(TensorBoard(trainer.tensorboard_dir))
    if trainer.wandb_project is not None:
        sinks.append(WeightsAndBiases(trainer.wandb_project, tracked(".wandb")))
    if (uri := trainer.mlflow_uri) is not None:
        sinks.append(Mlflow(uri, trainer.mlflow_experiment, tracked(".mlflow")))
    return [CsvFile(settings.metrics_csv), Gauges(metrics), *sinks]
