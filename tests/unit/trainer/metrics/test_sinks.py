"""Sinks: rows of evaluations are about earlier steps than the newest, and rows are whole."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from infra.telemetry.metrics import Metrics
from trainer.metrics.sinks import CsvFile, Gauges, WeightsAndBiases


class WandbLibrary(ModuleType):
    """Takes what `wandb` and its run are called with."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.axes: dict[str, str] = {}
        self.rows: list[dict[str, float]] = []

    def init(self, project: str, name: str) -> "WandbLibrary":
        return self

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axes[name] = step_metric

    def log(self, row: dict[str, float]) -> None:
        self.rows.append(row)


def test_rows_of_weights_and_biases_carry_their_step(monkeypatch: pytest.MonkeyPatch) -> None:
    library = WandbLibrary()
    monkeypatch.setitem(sys.modules, "wandb", library)
    sink = WeightsAndBiases("project", "tiny")
    sink.write(7, 8, 0, {"loss": 0.25})
    sink.write(6, 6, 0, {"eval_reward_mean": 0.5})
    assert library.axes == {"*": "step"}
    assert library.rows == [
        {"loss": 0.25, "version": 8, "step": 7},
        {"eval_reward_mean": 0.5, "version": 6, "step": 6},
    ]


def test_an_evaluation_of_earlier_weights_takes_no_step_back() -> None:
    metrics = Metrics()
    sink = Gauges(metrics)
    sink.write(7, 8, 0, {"loss": 0.25})
    sink.write(6, 6, 0, {"eval_reward_mean": 0.5, "eval_version": 6.0})
    assert b"seamlessflow_trainer_steps 8.0" in metrics.text()


def test_a_file_of_an_earlier_release_keeps_its_columns(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    file.write_text("step,version,at_ms,train_s,more\n")
    sink = CsvFile(file)
    sink.write(3, 4, 5, {"train_s": 0.5, "modelled_s": 0.25})
    sink.close()
    assert file.read_text().splitlines()[1:] == ["3,4,5,0.5,modelled_s=0.25"]


def test_a_row_that_a_full_disk_cut_off_is_removed(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    CsvFile(file).close()
    head = file.read_text()
    file.write_text(f"{head}1,1,0,0.5\n2,2,0")
    sink = CsvFile(file)
    sink.write(2, 2, 0, {})
    sink.close()
    rows = file.read_text().removeprefix(head).splitlines()
    assert [row.split(",")[:3] for row in rows] == [["1", "1", "0"], ["2", "2", "0"]]
