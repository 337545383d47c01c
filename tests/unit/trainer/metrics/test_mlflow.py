"""MLflow as a sink: a run goes on over starts of the trainer, and outages lose no row."""

import json
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from pydantic import ValidationError

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.trainer.metrics.mlflow import Mlflow, legal_name
from seamlessflow.trainer.metrics.trackers import SampleText, TrackedRun
from seamlessflow.trainer.settings import TrainerSection

LIMIT_S = 120.0


class MlflowError(Exception):
    """Stands for `MlflowException`."""

    def __init__(self, error_code: str = "INTERNAL_ERROR") -> None:
        self.error_code = error_code
        super().__init__(error_code)


@dataclass(frozen=True)
class MlflowMetric:
    """Stands for `mlflow.entities.Metric`."""

    key: str
    value: float
    timestamp: int
    step: int


@dataclass(frozen=True)
class MlflowPair:
    """Stands for `mlflow.entities.Param` and `RunTag`."""

    key: str
    value: str


class MlflowLibrary(ModuleType):
    """Keeps what `mlflow` is called with, as its server would."""

    exceptions = SimpleNamespace(MlflowException=MlflowError)
    entities = SimpleNamespace(Metric=MlflowMetric, Param=MlflowPair, RunTag=MlflowPair)

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.rows: dict[str, list[MlflowMetric]] = {}
        self.names: dict[str, str] = {}
        self.statuses: dict[str, str] = {}
        self.experiments: list[str] = []
        self.parameters: dict[str, dict[str, str]] = {}
        self.tags: dict[str, dict[str, str]] = {}
        self.texts: dict[str, str] = {}
        self.away = False
        self.refused = threading.Event()
        """Set at a call while it is away."""

    def MlflowClient(self, tracking_uri: str) -> "MlflowLibrary":
        if not tracking_uri.startswith("http"):
            raise MlflowError("unsupported URI")
        return self

    def get_experiment_by_name(self, name: str) -> SimpleNamespace | None:
        exists = name in self.experiments
        return SimpleNamespace(experiment_id=f"id of {name}") if exists else None

    def create_experiment(self, name: str) -> str:
        self._answer()
        self.experiments.append(name)
        return f"id of {name}"

    def create_run(self, experiment: str, run_name: str) -> SimpleNamespace:
        self._answer()
        run = f"run {len(self.names)} in {experiment}"
        self.names[run], self.statuses[run], self.rows[run] = run_name, "RUNNING", []
        self.parameters[run], self.tags[run] = {}, {}
        return SimpleNamespace(info=SimpleNamespace(run_id=run))

    def get_run(self, run: str) -> SimpleNamespace:
        self._answer()
        if run not in self.names:
            raise MlflowError("RESOURCE_DOES_NOT_EXIST")
        data = SimpleNamespace(params=dict(self.parameters[run]))
        return SimpleNamespace(info=SimpleNamespace(lifecycle_stage="active"), data=data)

    def update_run(self, run: str, status: str) -> None:
        self.statuses[run] = status

    def log_batch(
        self,
        run: str,
        metrics: Sequence[MlflowMetric] = (),
        params: Sequence[MlflowPair] = (),
        tags: Sequence[MlflowPair] = (),
    ) -> None:
        self._answer()
        self.rows[run].extend(metrics)
        for parameter in params:
            if self.parameters[run].setdefault(parameter.key, parameter.value) != parameter.value:
                raise MlflowError("INVALID_PARAMETER_VALUE")
        self.tags[run] |= {tag.key: tag.value for tag in tags}

    def log_text(self, run: str, text: str, artifact_file: str) -> None:
        self._answer()
        self.texts[artifact_file] = text

    def set_terminated(self, run: str) -> None:
        self._answer()
        self.statuses[run] = "FINISHED"

    def _answer(self) -> None:
        if self.away:
            self.refused.set()
            raise ConnectionError("refused")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> MlflowLibrary:
    library = MlflowLibrary()
    monkeypatch.setitem(sys.modules, "mlflow", library)
    return library


Opened = Callable[..., Mlflow]


@pytest.fixture
def opened(library: MlflowLibrary, tmp_path: Path) -> Opened:
    uri = "http://127.0.0.1:5000"

    def open_sink(**parameters: str) -> Mlflow:
        tracked = TrackedRun("tiny", parameters, tmp_path / "metrics.mlflow")
        return Mlflow(uri, "small", tracked, retry_s=0.01)

    return open_sink


def test_settings_are_parameters_and_those_that_changed_at_a_resume_are_tags(
    library: MlflowLibrary, opened: Opened
) -> None:
    many = {f"trainer.setting_{number}": "1" for number in range(150)}
    for parameters in (many | {"run.steps": "10"}, many | {"run.steps": "20", "run.lag": "1"}):
        sink = opened(**parameters)
        sink.write(1, 1, 0, {"loss": 0.5})
        sink.close()
    (run,) = library.names
    assert library.parameters[run] == many | {"run.steps": "10", "run.lag": "1"}
    assert library.tags[run] == {"run.steps": "20"}


def test_a_table_of_sample_texts_is_an_artifact(library: MlflowLibrary, opened: Opened) -> None:
    sink = opened()
    sink.write_samples(10, [SampleText("g", "s", 0.5, "2 + 2 =", " 4")])
    sink.close()
    ((name, text),) = library.texts.items()
    assert name == "samples/step-000010.jsonl"
    row = {"group": "g", "session": "s", "reward": 0.5, "prompt": "2 + 2 =", "answer": " 4"}
    assert json.loads(text) == row


def test_a_row_has_step_time_and_version(library: MlflowLibrary, opened: Opened) -> None:
    sink = opened()
    sink.write(7, 8, 1234, {"loss": 0.25, "masked/stale": 3.0})
    sink.write(6, 6, 1235, {"eval_reward_mean": 0.5})
    sink.close()
    ((run, rows),) = library.rows.items()
    assert [(metric.key, metric.value, metric.timestamp, metric.step) for metric in rows] == [
        ("loss", 0.25, 1234, 7),
        ("masked/stale", 3.0, 1234, 7),
        ("version", 8.0, 1234, 7),
        ("eval_reward_mean", 0.5, 1235, 6),
        ("version", 6.0, 1235, 6),
    ]
    assert (library.names[run], library.statuses[run]) == ("tiny", "FINISHED")
    assert library.experiments == ["small"]


def test_a_trainer_that_is_started_again_goes_on_with_its_run(
    library: MlflowLibrary, opened: Opened
) -> None:
    for step in range(2):
        sink = opened()
        sink.write(step, step + 1, 0, {"loss": 0.5})
        sink.close()
    ((_, rows),) = library.rows.items()
    assert [metric.step for metric in rows if metric.key == "loss"] == [0, 1]


def test_a_run_that_was_deleted_is_begun_anew(library: MlflowLibrary, opened: Opened) -> None:
    for step in range(2):
        sink = opened()
        sink.write(step, step + 1, 0, {"loss": 0.5})
        sink.close()
        if not step:
            library.names.clear()
            library.names["another"] = ""
    assert [len(rows) for rows in library.rows.values()] == [2, 2]


def test_rows_wait_while_mlflow_is_away(
    library: MlflowLibrary, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    library.away = True
    sink = opened()
    for step in range(3):
        sink.write(step, step + 1, 0, {"loss": 0.5})
    assert library.refused.wait(LIMIT_S)
    library.away = False
    sink.write(3, 4, 0, {"loss": 0.5})
    sink.close()
    ((_, rows),) = library.rows.items()
    assert [metric.step for metric in rows if metric.key == "loss"] == [0, 1, 2, 3]
    assert caplog.text.count("MLflow takes no metrics") == 1


def test_the_end_of_a_trainer_does_not_wait_for_a_mlflow_that_is_away(
    library: MlflowLibrary, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    library.away = True
    sink = opened()
    sink.write(0, 1, 0, {"loss": 0.5})
    sink.write(1, 2, 0, {"loss": 0.5})
    assert library.refused.wait(LIMIT_S)
    sink.close()
    assert "the last rows were not sent to MLflow" in caplog.text
    assert library.rows == {}


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("pass_at/4", "pass_at/4"),
        ("dropped/too few: 3 (of 4)", "dropped/too few_ 3 _of 4_"),
        ("masked/../a", "masked/_/a"),
        ("/a//b/", "_/a/_/b/_"),
        ("x" * 300, "x" * 250),
    ],
)
def test_names_of_metrics_are_made_legal(name: str, legal: str) -> None:
    assert legal_name(name) == legal


def test_a_uri_that_mlflow_does_not_know_is_refused(library: MlflowLibrary, tmp_path: Path) -> None:
    with pytest.raises(SettingsRejected, match=r"trainer\.mlflow_uri: ftp:.*unsupported URI"):
        Mlflow("ftp://nowhere", "small", TrackedRun("tiny", {}, tmp_path / "run"))


def test_a_password_in_the_uri_is_refused() -> None:
    with pytest.raises(ValidationError, match="set MLFLOW_TRACKING_USERNAME"):
        TrainerSection(mlflow_uri="https://me:secret@mlflow.example")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("", "names no server"),
        ("http://", "names no server"),
        ("https://:5000", "names no server"),
        ("http://mlflow:x", "port is no number"),
        ("http://mlflow:99999", "port is no number"),
    ],
)
def test_a_uri_that_can_be_no_server_is_refused_before_the_start(uri: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainerSection(mlflow_uri=uri)
