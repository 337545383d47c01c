"""Sinks: rows of evaluations are about earlier steps than the newest, and rows are whole."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.settings import SharedRunSection
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.trainer.metrics.sinks import CsvFile, Gauges, TensorBoard, WeightsAndBiases
from seamlessflow.trainer.metrics.trackers import SampleText, SinkUnavailable, TrackedRun, flattened
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings


class WandbLibrary(ModuleType):
    """Takes what `wandb` and its run are called with."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.started: list[dict[str, str]] = []
        self.axes: dict[str, str] = {}
        self.rows: list[dict[str, Any]] = []
        self.parameters: dict[str, str] = {}
        self.config = SimpleNamespace(update=self.configure)
        self.errors = SimpleNamespace(UsageError=LookupError, AuthenticationError=PermissionError)
        self.has_key = True

    def init(self, **options: str) -> "WandbLibrary":
        if not self.has_key:
            raise LookupError("No API key configured.")
        self.started.append(options)
        return self

    def configure(self, parameters: dict[str, str], allow_val_change: bool) -> None:
        assert allow_val_change, "a setting may change at a resume"
        self.parameters |= parameters

    def Table(self, columns: list[str], data: list[list[Any]]) -> list[dict[str, Any]]:
        return [dict(zip(columns, row, strict=True)) for row in data]

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axes[name] = step_metric

    def log(self, row: dict[str, Any]) -> None:
        self.rows.append(row)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> WandbLibrary:
    library = WandbLibrary()
    monkeypatch.setitem(sys.modules, "wandb", library)
    return library


def tracked(directory: Path, **parameters: str) -> TrackedRun:
    return TrackedRun("first", parameters, directory / "metrics.wandb")


def test_rows_of_weights_and_biases_carry_their_step(wandb: WandbLibrary, tmp_path: Path) -> None:
    sink = WeightsAndBiases("project", tracked(tmp_path))
    sink.write(7, 8, 0, {"loss": 0.25})
    sink.write(6, 6, 0, {"eval_reward_mean": 0.5})
    assert wandb.axes == {"*": "step"}
    assert wandb.rows == [
        {"loss": 0.25, "version": 8, "step": 7},
        {"eval_reward_mean": 0.5, "version": 6, "step": 6},
    ]


def test_a_missing_key_is_named_with_the_setting(wandb: WandbLibrary, tmp_path: Path) -> None:
    wandb.has_key = False
    with pytest.raises(SettingsRejected, match=r"No API key configured.*set WANDB_API_KEY"):
        WeightsAndBiases("project", tracked(tmp_path))


def test_the_library_itself_keeps_a_run_on_the_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    sink = WeightsAndBiases("project", tracked(tmp_path, **{"run.steps": "10"}))
    sink.write(0, 1, 0, {"loss": 0.5})
    sink.write_samples(0, [SampleText("g", "s", 0.5, "2 + 2 =", " 4")])
    sink.close()
    run_id = (tmp_path / "metrics.wandb").read_text()
    assert list(tmp_path.glob(f"wandb/offline-run-*-{run_id}/run-{run_id}.wandb"))


def test_a_trainer_that_starts_again_goes_on_with_its_run(
    wandb: WandbLibrary, tmp_path: Path
) -> None:
    for steps in ("10", "20"):
        WeightsAndBiases("project", tracked(tmp_path, **{"run.steps": steps}))
    first, second = wandb.started
    assert first == second
    assert (first["name"], first["resume"], len(first["id"])) == ("first", "allow", 16)
    assert wandb.parameters == {"run.steps": "20"}


def test_a_table_of_sample_texts_is_shown_with_its_step(
    wandb: WandbLibrary, tmp_path: Path
) -> None:
    sample = SampleText("g", "s", 0.5, "2 + 2 =", " 4")
    file = CsvFile(tmp_path / "metrics.csv")
    for sink in (WeightsAndBiases("project", tracked(tmp_path)), file, Gauges(Metrics())):
        sink.write_samples(10, [sample])
    file.close()
    assert wandb.rows == [{"samples": [sample._asdict()], "step": 10}]
    (line,) = (tmp_path / "samples.jsonl").read_text().splitlines()
    assert json.loads(line) == {"step": 10, **sample._asdict()}


def test_settings_are_named_by_their_place_in_the_configuration() -> None:
    assert flattened({"run": {"steps": 1}, "trainer": {"loss": {"kl": 0.5}, "devices": []}}) == {
        "run.steps": "1",
        "trainer.loss.kl": "0.5",
        "trainer.devices": "[]",
    }


def test_a_run_is_named_as_its_directory_unless_a_setting_names_it(tmp_path: Path) -> None:
    section, several = (
        TrainerSection(run_name="mine"),
        SharedRunSection(policies=("policy", "coder")),
    )
    names = [
        TrainerSettings(data_dir=tmp_path / "out", **more).run_name
        for more in ({}, {"trainer": section}, {"run": several})
    ]
    assert names == ["out", "mine", "out-policy"]


def test_an_evaluation_of_earlier_weights_takes_no_step_back() -> None:
    metrics = Metrics()
    sink = Gauges(metrics)
    sink.write(7, 8, 0, {"loss": 0.25})
    sink.write(6, 6, 0, {"eval_reward_mean": 0.5, "eval_version": 6.0})
    assert b"seamlessflow_trainer_steps 7.0" in metrics.text()


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


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the values in a directory's event files by their names, each with its step."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    values: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(directory.glob("events.out.tfevents.*")):
        data = file.read_bytes()
        while data:
            # A record: its size (8 bytes), a checksum (4), the event, a checksum (4).
            size = int.from_bytes(data[:8], "little")
            event = event_pb2.Event.FromString(data[12 : 12 + size])
            data = data[16 + size :]
            for value in event.summary.value:
                values.setdefault(value.tag, []).append((event.step, value.simple_value))
    return values


def test_files_of_tensorboard_have_each_row_by_its_step_and_the_sample_texts(
    tmp_path: Path,
) -> None:
    for step in (1, 2):  # the second is that of a trainer that was started again
        sink = TensorBoard(tmp_path)
        sink.write(step, step, 1_000, {"loss": 0.25, "eval_pass_all/4/hard": 0.5})
        sink.write_samples(step, [SampleText("g", "s", 0.5, "2 + 2 =", " 4")])
        sink.close()
    written = scalars(tmp_path)
    assert sorted(written["loss"]) == [(1, 0.25), (2, 0.25)]
    assert sorted(written["eval_pass_all/4/hard"]) == [(1, 0.5), (2, 0.5)]
    assert [name for name in written if name.startswith("samples/0")]


def test_files_of_tensorboard_without_a_package_name_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("tensorboardX", "tensorboard"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SinkUnavailable, match="pip install tensorboardX"):
        TensorBoard(tmp_path)


def test_a_trainer_that_ends_in_between_leaves_the_run_of_weights_and_biases_whole(
    tmp_path: Path,
) -> None:
    """The library's own clean-up at the end of a process must not raise."""
    program = f"""
from pathlib import Path
from seamlessflow.trainer.metrics.sinks import WeightsAndBiases
from seamlessflow.trainer.metrics.trackers import TrackedRun
sink = WeightsAndBiases("project", TrackedRun("first", {{}}, Path({str(tmp_path)!r}) / "id"))
sink.write(0, 1, 0, {{"loss": 0.5}})
raise SystemExit(3)
"""
    variables = {**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**variables, "WANDB_SILENT": "true"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    run_id = (tmp_path / "id").read_text()
    assert list(tmp_path.glob(f"wandb/offline-run-*-{run_id}/run-{run_id}.wandb"))
