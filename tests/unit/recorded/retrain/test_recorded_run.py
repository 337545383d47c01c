"""A run read from `control` to be trained again, with its settings."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.retrain.recorded_run import (
    RecordedRun,
    RunNotRepeatable,
    changed_settings,
    check_methods,
    recorded_run,
    recorded_settings,
)
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import LineageStarted, Record
from seamlessflow.trainer.recovery.resume import SECTIONS
from seamlessflow.trainer.settings import TrainerSettings
from tests.builders.records import control

GROUP = r.StepGroup(group_id="g", sessions=("g.0.0",))


def lineage(name: str, **changes: Any) -> r.LineageStarted:
    fields: dict[str, Any] = {"at_ms": 0, "policy": "policy", "step": 0, "settings": b"{}"}
    return r.LineageStarted(lineage=name, **{**fields, **changes})


def step(number: int, lineage_name: str, version: int, parent: str = "") -> list[Record]:
    named: dict[str, Any] = {"lineage": lineage_name, "version": version}
    return [
        control.committed(number, [GROUP], parent_lineage=parent, **named),
        control.published(
            version, step=number + 1, lineage=lineage_name, tensors_hash=f"h{version}"
        ),
        control.completed(number, metrics={"loss": float(version)}, **named),
    ]


def read(*records: Record) -> RecordedRun:
    log: Sequence[Record] = (
        lineage("a"),
        control.published(0, tensors_hash="h0"),
        *records,
    )
    return recorded_run("policy", enumerate(log))


def test_steps_are_those_behind_the_newest_weights() -> None:
    resumed = [lineage("b", parent_lineage="a", step=1), *step(1, "b", 3, parent="a")]
    run = read(*step(0, "a", 1), *step(1, "a", 2), *resumed)
    assert [
        (recorded_step.trains, recorded_step.tensors_hash, recorded_step.metrics)
        for recorded_step in run.steps
    ] == [
        (0, "h1", {"loss": 1.0}),
        (1, "h3", {"loss": 3.0}),
    ]
    assert (run.first_hash, run.sessions()) == ("h0", {"g.0.0": "b"})


def test_a_skipped_step_leaves_the_version() -> None:
    skipped = r.StepSkipped(at_ms=0, step=1, reason="no_groups")
    run = read(*step(0, "a", 1), skipped, *step(2, "a", 2))
    assert [
        (recorded_step.step, recorded_step.commit is None, recorded_step.trains)
        for recorded_step in run.steps
    ] == [
        (0, False, 0),
        (1, True, 1),
        (2, False, 1),
    ]


def test_a_run_that_cannot_be_repeated_says_why() -> None:
    with pytest.raises(RunNotRepeatable, match="no step of it is committed"):
        read()
    with pytest.raises(RunNotRepeatable, match="settings of lineage b are not recorded"):
        read(*step(0, "b", 1))
    with pytest.raises(RunNotRepeatable, match="step 1 is not recorded"):
        read(*step(1, "a", 1))
    with pytest.raises(RunNotRepeatable, match="went on behind step 7"):
        read(lineage("b", step=7), *step(7, "b", 1))


def test_each_step_has_the_lineage_whose_settings_it_was_trained_with() -> None:
    other = lineage("b", parent_lineage="a", step=1, settings=b'{"run":1}', ranks=2)
    skipped = r.StepSkipped(at_ms=0, step=1, reason="no_groups")
    run = read(*step(0, "a", 1), skipped, other, *step(2, "b", 2, parent="a"))
    assert [(recorded_step.step, recorded_step.lineage) for recorded_step in run.steps] == [
        (0, "a"),
        (1, "a"),
        (2, "b"),
    ]
    assert [record.settings for record in run.lineages] == [b"{}", b'{"run":1}']


def test_a_step_whose_method_has_another_version_now_is_not_repeated() -> None:
    then = r.StepMethod(kind="loss", name="tis", settings_hash="0123")
    first, *others = step(1, "a", 2)
    assert isinstance(first, r.StepCommitted)
    run = read(*step(0, "a", 1), replace(first, methods=(then,)), *others)
    check_methods(run, {"a": [replace(then, settings_hash="by its new form")]})
    with pytest.raises(RunNotRepeatable, match=r"step 2 .* loss was tis, is tis version 2"):
        check_methods(run, {"a": [replace(then, version=2)]})


def recorded_lineage() -> LineageStarted:
    settings = TrainerSettings().model_dump(mode="json", include=set(SECTIONS))
    return LineageStarted(
        at_ms=0, policy="p", lineage="a", step=0, settings=orjson.dumps(settings), threads=3
    )


def test_nothing_of_the_environment_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = recorded_lineage()
    monkeypatch.setenv("SEAMLESSFLOW_TRAINER__FILTERS", '{"equal_rewards": "drop"}')
    monkeypatch.setenv("SEAMLESSFLOW_TRAINER__OPTIMIZER__LR", "0.5")
    settings = recorded_settings(recorded, KafkaSettings())
    monkeypatch.undo()
    assert settings.trainer.filters == TrainerSettings().trainer.filters
    assert settings.trainer.optimizer.lr == TrainerSettings().trainer.optimizer.lr
    assert settings.trainer.threads == 3


def test_a_setting_is_replaced_by_its_path() -> None:
    changes = ["trainer.loss.name=tis", "trainer.optimizer.lr=0.25"]
    settings = recorded_settings(recorded_lineage(), KafkaSettings(), changes)
    assert (settings.trainer.loss.name, settings.trainer.optimizer.lr) == ("tis", 0.25)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("trainer.loss.nam=tis", "there are .*name"),
        ("trainer.loss.name", "not NAME=VALUE"),
        ("trainer.mini_batches=010", "010 is 8 to YAML 1.1 and 10 to YAML 1.2"),
        ("rollout.slots=1", "there are pacing, policy, run, trainer"),
        ("trainer.loss.name=ppo", r"trainer\.loss\.name: must be .*; did you mean ppo_clip\?"),
        ("trainer.kl_penalty=0.1", "--set: trainer: kl_penalty is a part of the rewards"),
    ],
)
def test_a_setting_that_is_none_is_refused_with_the_nearest(option: str, message: str) -> None:
    with pytest.raises(SettingsRejected, match=message):
        recorded_settings(recorded_lineage(), KafkaSettings(), [option])


def test_settings_in_which_lineages_differ_are_named_by_their_paths() -> None:
    before = recorded_lineage()
    sections = orjson.loads(before.settings)
    sections["trainer"]["optimizer"]["lr"] = 0.5
    sections["run"]["steps"] = 7
    after = replace(before, lineage="b", settings=orjson.dumps(sections))
    steps, lr = TrainerSettings().run.steps, TrainerSettings().trainer.optimizer.lr
    assert changed_settings(before, after) == {
        "run.steps": f"{steps} -> 7",
        "trainer.optimizer.lr": f"{lr} -> 0.5",
    }
    assert changed_settings(before, replace(before, lineage="b")) == {}
