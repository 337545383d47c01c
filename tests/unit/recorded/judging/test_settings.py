"""Judges in a configuration: what goes together, and what is refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from seamlessflow.recorded.judging.settings import JudgeSection, RewardsSection

URL = "http://there/v1"


def judge(**model: Any) -> JudgeSection:
    return JudgeSection.model_validate({"model": {"prompt": "$answer", **model}})


def test_a_model_is_at_a_server_or_a_policy_of_the_run() -> None:
    judges = {"right": judge(policy="referee"), "style": judge(url=URL, name="m")}
    assert RewardsSection(judges=judges).policies == {"referee"}


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({}, "either url or policy must be set"),
        ({"url": URL, "name": "m", "policy": "referee"}, "either url or policy must be set"),
        ({"url": URL}, "set name"),
        ({"url": "there", "name": "m"}, "url"),
        ({"policy": "referee", "name": "m"}, "leave them out"),
        ({"policy": "referee", "api_key": "sk"}, "leave them out"),
        ({"policy": "referee", "temperature": 0.001}, "must be 0 (greedy), or 0.01 to 2"),
        ({"policy": "referee", "temperature": 3}, "must be 0 (greedy), or 0.01 to 2"),
    ],
)
def test_what_does_not_go_together_is_refused(model: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError) as error:
        judge(**model)
    assert reason in str(error.value)


def test_a_judge_of_turns_is_no_model() -> None:
    section = JudgeSection.model_validate({"callable": "mine:steps", "of": "turns"})
    assert section.unit == "turns"
    model = {"policy": "referee", "prompt": "$answer"}
    with pytest.raises(ValidationError, match="a model judges the session"):
        JudgeSection.model_validate({"model": model, "of": "turns"})
