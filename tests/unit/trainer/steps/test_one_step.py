"""A step is committed, published and reported in this order, or not at all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import ExitStatus, KafkaUnavailable
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.infra.settings import TelemetrySettings
from seamlessflow.infra.telemetry.tracing import telemetry
from seamlessflow.schemas.records import Record, StepCommitted
from seamlessflow.trainer.backends.backend import StepInput, UpdateFailed
from seamlessflow.trainer.data.batch import Batch, prepare
from seamlessflow.trainer.data.chains import AnnotatedColumns, Column
from seamlessflow.trainer.data.packing import MicroBatch
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from seamlessflow.trainer.steps.one_step import StepFailed, StepFenced, StepOrder, StepRunner
from seamlessflow.trainer.steps.publication import Publication
from tests.builders.trainer.groups import NOW, RULES, group
from tests.builders.trainer.metric_names import is_listed
from tests.builders.trainer.stub_backend import StubBackend


class Log:
    """Takes records as a producer does, and remembers the order of things."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.records: list[Record] = []
        self.acknowledges = True
        self.failure: UpdateFailed | None = None
        self.column = 0.0

    def send(self, topic: str, record: Record, **_: object) -> None:
        self.done.append(type(record).__name__)
        self.records.append(record)

    def settle(self, stopping: Stopping) -> None:
        if not self.acknowledges:
            assert stopping(), "would wait for ever"
            raise KafkaUnavailable("nowhere", 0)
        self.done.append("settle")


class Backend(StubBackend):
    """Tells the log when it is asked for something."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def annotate(
        self, batches: Sequence[MicroBatch], columns: Sequence[Column]
    ) -> AnnotatedColumns:
        numbers = self._log.column
        return {
            name: [np.full(len(batch), numbers, np.float32) for batch in batches]
            for name in columns
        }

    def train(self, step: StepInput) -> Mapping[str, float]:
        if self._log.failure is not None:
            raise self._log.failure
        return super().train(step)

    def remember(self, version: int) -> None:
        self._log.done.append(f"remember {version}")

    def write_weights(self, directory: Path) -> None:
        self._log.done.append("weights")
        super().write_weights(directory)


def order(consumed: tuple[str, ...] = ()) -> StepOrder:
    groups = (prepare(group("g", 1, 0), NOW, RULES), prepare(group("h", 1, 0), NOW, RULES))
    return StepOrder(
        batch=Batch(3, groups),
        facts={"groups": 2.0},
        version=3,
        next_version=4,
        lineage="a",
        parent_lineage="",
        trained_before=3,
        consumed=consumed,
        started_ms=0,
    )


Made = tuple[StepRunner, Log]


@pytest.fixture
def make(tmp_path: Path) -> Callable[[], Made]:
    model = tmp_path / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text("{}")
    return partial(made_runner, tmp_path, model)


def made_runner(data: Path, model: Path, **trainer: Any) -> Made:
    settings = TrainerSettings(
        data_dir=data,
        policy=PolicySection(model=model, renderer=RendererSettings("qwen3")),
        trainer=TrainerSection(**trainer),
    )
    log = Log()
    publication = Publication(settings)
    publication.prepare()
    traces = telemetry(TelemetrySettings(), "trainer", "w")
    producer = cast("Producer", log)
    return StepRunner(settings, Backend(log), publication, producer, traces, lambda: 9), log


def test_the_metrics_of_a_step_say_what_trees_spare(tmp_path: Path) -> None:
    """Four sessions with equal tokens, of which one is computed."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text("{}")
    runner, _ = made_runner(tmp_path, model, layout="tree")
    assert runner.run(order()).metrics["tokens_saved"] == pytest.approx(0.75)


def test_weights_are_published_only_after_the_step_is_acknowledged(
    make: Callable[[], Made],
) -> None:
    runner, log = make()
    done = runner.run(order())
    assert log.done == [
        "StepCommitted",
        "settle",
        "remember 4",
        "weights",
        "WeightsPublished",
        "PolicyWeights",
        "GroupConsumed",
        "GroupConsumed",
        "StepCompleted",
        "settle",
    ]
    assert done.metrics["groups"] == 2


def test_a_step_that_cannot_be_trained_is_not_committed_and_says_which_it_is(
    make: Callable[[], Made], tmp_path: Path
) -> None:
    runner, log = make()
    log.failure = UpdateFailed("the gradient is not finite", [2, 0, 2])
    with pytest.raises(StepFailed) as raised:
        runner.run(order())
    assert raised.value.sessions == ("h.0.0", "g.0.0")
    assert "step 4 is not committed: the gradient is not finite (sessions h" in str(raised.value)
    assert raised.value.process_status(ready=True) is ExitStatus.LASTING
    assert log.done == []
    assert not list((tmp_path / "trained").glob("*"))


def test_an_estimator_of_a_batch_that_fails_ends_the_step_and_is_named(tmp_path: Path) -> None:
    """There is no group to drop: it sees all of them, with the values of a critic here."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text("{}")
    runner, log = made_runner(tmp_path, model, advantage="gae")
    log.column = float("nan")
    with pytest.raises(StepFailed, match=r"estimator gae failed: .* nan for session 0") as raised:
        runner.run(order())
    assert raised.value.process_status(ready=True) is ExitStatus.LASTING
    assert log.done == []


def test_a_step_tells_the_seconds_of_its_phases_and_the_copy_before_it(
    make: Callable[[], Made],
) -> None:
    runner, _ = make()
    first = runner.run(order()).metrics
    runner.snapshot()
    second = runner.run(order()).metrics
    measured = {"annotate_s", "advantages_s", "update_s", "commit_s", "publish_s", "train_s"}
    assert measured <= first.keys()
    assert "checkpoint_s" in second and "checkpoint_s" not in first
    assert all(is_listed(name) for name in second)


def test_a_step_records_its_methods_and_what_was_read_for_its_batch(
    make: Callable[[], Made],
) -> None:
    runner, log = make()
    runner.run(replace(order(), control_offset=17))
    (commit,) = [record for record in log.records if isinstance(record, StepCommitted)]
    assert commit.control_offset == 17
    assert [(method.kind, method.name) for method in commit.methods] == [
        ("advantage", "grpo"),
        ("loss", "ppo_clip"),
        ("staleness", "mask"),
        ("filter", "zero_variance"),
        ("filter", "untrainable"),
    ]


def test_a_group_whose_end_was_reported_is_not_reported_again(make: Callable[[], Made]) -> None:
    runner, log = make()
    runner.run(order(consumed=("g",)))
    assert log.done.count("GroupConsumed") == 1


def test_the_record_of_trained_tokens_is_there_before_the_step_is_committed(
    make: Callable[[], Made], tmp_path: Path
) -> None:
    runner, log = make()
    runner.fence()
    with pytest.raises(StepFenced):
        runner.run(order())
    assert log.done == []
    assert [path.name for path in (tmp_path / "trained").iterdir()] == [
        "step-00000003-version-00000004.jsonl.gz"
    ]


def test_a_step_that_is_not_acknowledged_is_not_waited_for_when_the_process_is_to_end(
    make: Callable[[], Made],
) -> None:
    runner, log = make()
    log.acknowledges = False
    runner.end_soon()
    with pytest.raises(KafkaUnavailable):
        runner.run(order())
    assert log.done == ["StepCommitted"]
