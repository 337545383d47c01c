"""Settings of a recorded run."""

from dataclasses import replace

import orjson
import pytest

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.retrain.settings import changed_settings, recorded_settings
from seamlessflow.schemas.records import LineageStarted
from seamlessflow.trainer.recovery.resume import SECTIONS
from seamlessflow.trainer.settings import TrainerSettings


def lineage() -> LineageStarted:
    settings = TrainerSettings().model_dump(mode="json", include=set(SECTIONS))
    return LineageStarted(
        at_ms=0, policy="p", lineage="a", step=0, settings=orjson.dumps(settings), threads=3
    )


def test_nothing_of_the_environment_enters(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = lineage()
    monkeypatch.setenv("SEAMLESSFLOW_TRAINER__FILTERS", '{"equal_rewards": "drop"}')
    monkeypatch.setenv("SEAMLESSFLOW_TRAINER__OPTIMIZER__LR", "0.5")
    found = recorded_settings(recorded, KafkaSettings())
    monkeypatch.undo()
    assert found.trainer.filters == TrainerSettings().trainer.filters
    assert found.trainer.optimizer.lr == TrainerSettings().trainer.optimizer.lr
    assert found.trainer.threads == 3


def test_a_setting_is_replaced_by_its_path() -> None:
    changes = ["trainer.loss.name=tis", "trainer.optimizer.lr=0.25"]
    found = recorded_settings(lineage(), KafkaSettings(), changes)
    assert (found.trainer.loss.name, found.trainer.optimizer.lr) == ("tis", 0.25)


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
        recorded_settings(lineage(), KafkaSettings(), [option])


def test_settings_in_which_lineages_differ_are_named_by_their_paths() -> None:
    before = lineage()
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
