"""Policies that share workers with vLLM must be adapters of one base model, or whole models."""

from pathlib import Path
from typing import Any

import pytest

from seamlessflow.checks.models import apart_on_vllm
from seamlessflow.config import RunConfig
from seamlessflow.each_policy import each_policy

ADAPTER = {"trainer": {"adapter": {"rank": 16}}}


def refusal(second: dict[str, Any], engine: str = "vllm", first: dict[str, Any] = ADAPTER) -> str:
    values = {
        "policy": {"model": Path("base")},
        "rollout": {"engine": engine},
        "policies": {"coder": second},
        **first,
    }
    whole = RunConfig.model_validate(values)
    return apart_on_vllm(each_policy(whole)[1], whole)


def test_adapters_of_one_base_with_like_ranks_are_served_in_turns() -> None:
    assert refusal({}) == ""
    assert refusal({"trainer": {"adapter": {"rank": 12}}}) == ""
    assert refusal({"policy": {"model": Path("other")}}, first={}) == ""


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ({"policy": {"model": Path("other")}}, "one policy.model"),
        ({"trainer": {"adapter": {"rank": 0}}}, "or whole models"),
        ({"trainer": {"adapter": {"rank": 17}}}, "17 and 16"),
        ({"trainer": {"adapter": {"rank": 8}}}, "8 and 16"),
    ],
)
def test_what_one_server_cannot_serve_is_told(second: dict[str, Any], reason: str) -> None:
    assert reason in refusal(second)
    assert refusal(second, engine="torch") == ""
