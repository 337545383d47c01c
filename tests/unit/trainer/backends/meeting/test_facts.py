"""The facts that the ranks of a gang must have alike."""

from pathlib import Path
from typing import Any

import pytest

from seamlessflow.trainer.backends.meeting.facts import OWN, differences, gang_facts
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings


def model(directory: Path, config: str = "{}") -> Path:
    directory.mkdir()
    (directory / "config.json").write_text(config, encoding="utf-8")
    return directory


def settings(policy: Path, **trainer: Any) -> TrainerSettings:
    section = TrainerSection.model_validate(trainer)
    return TrainerSettings(policy=PolicySection(model=policy), trainer=section)


def test_ranks_differ_in_their_own_settings_alone(tmp_path: Path) -> None:
    one = {"worker": "w0", "rank": 0, "ranks": 3, "backend": "fsdp2", "devices": [0, 1]}
    other = {"worker": "w1", "rank": 2, "ranks": 3, "backend": "fsdp2", "host": "127.0.0.2"}
    here, there = model(tmp_path / "here"), model(tmp_path / "there")
    first = gang_facts(settings(here, **one, teacher=here))
    assert differences(first, gang_facts(settings(there, **other, teacher=there))) == ""


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"seed": 7}, "trainer.seed is 7, not 0"),
        ({"loss": {"clip_low": 0.3}}, "trainer.loss.clip_low is 0.3, not 0.2"),
        ({"optimizer": {"lr": 0.5}}, "trainer.optimizer.lr is 0.5, not 1e-06"),
    ],
)
def test_another_setting_is_named_with_both_values(
    tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    of = model(tmp_path / "model")
    assert differences(gang_facts(settings(of)), gang_facts(settings(of, **changed))) == told


def test_another_model_is_told_by_its_content(tmp_path: Path) -> None:
    one, other = model(tmp_path / "one"), model(tmp_path / "other", '{"layers": 2}')
    own = gang_facts(settings(one))
    assert differences(own, gang_facts(settings(other))).startswith("policy.model is ")
    critic = gang_facts(settings(one, critic={"model": other}))
    assert differences(own, critic).startswith("trainer.critic.model is ")


def test_the_first_differences_are_named_and_the_others_counted() -> None:
    own = {name: "1" for name in "abcde"}
    other = {name: "2" for name in "abcd"}
    assert differences(own, other) == "a is 2, not 1; b is 2, not 1; c is 2, not 1; 2 more"


def test_every_setting_of_a_worker_s_own_exists() -> None:
    assert TrainerSection.model_fields.keys() >= OWN
