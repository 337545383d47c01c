"""Bodies that open a session: sampling of its own."""

from typing import Any

import pytest
from pydantic import ValidationError

from seamlessflow.producers.gateway.calls.sessions import OpenBody, RewardBody
from seamlessflow.schemas.records import Sampling, SeedSession


def overrides(**body: Any) -> Sampling | None:
    asked = OpenBody(policy="p", **body).overrides
    return None if asked is None else asked.overrides


def test_a_session_of_an_evaluation_may_have_sampling_of_its_own() -> None:
    assert overrides(purpose="eval", overrides={"temperature": 0}) == Sampling(temperature=0)
    some = {"temperature": None, "top_p": 0.9, "top_k": None}
    assert overrides(purpose="eval", overrides=some) == Sampling(top_p=0.9)
    assert overrides(purpose="judge", overrides={"temperature": 0}) == Sampling(temperature=0)
    assert overrides(purpose="eval", overrides={}) is None
    assert overrides() is None


def test_a_session_may_take_the_seeds_of_an_explored_one() -> None:
    first = {"session_id": "s", "text": "t", "value": 0.5}
    body = OpenBody.model_validate({"policy": "p", "seed_session": first})
    assert body.seed_session == SeedSession(session_id="s", text="t", value=0.5)
    assert OpenBody(policy="p", purpose="explore").seed_session is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"overrides": {"temperature": 0}}, "what may be trained is sampled as the policy is"),
        ({"purpose": "explore", "overrides": {"temperature": 0}}, "what may be trained is sampled"),
        ({"purpose": "eval", "overrides": {"temperature": 0.001}}, "0 .greedy., or 0.01 or more"),
        ({"purpose": "eval", "overrides": {"temperature": -1}}, "greater than or equal to 0"),
        ({"purpose": "eval", "overrides": {"max_tokens": 5}}, "Extra inputs"),
    ],
)
def test_other_sampling_is_refused(body: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        OpenBody(policy="p", **body)


@pytest.mark.parametrize("value", [True, False, "1", "1.0", None, [1], float("nan"), float("inf")])
def test_a_reward_is_a_number(value: Any) -> None:
    with pytest.raises(ValidationError, match="value"):
        RewardBody(value=value)


@pytest.mark.parametrize("value", [0, 1, -1, 0.5, 10**15])
def test_a_whole_number_is_one_too(value: float) -> None:
    assert RewardBody(value=value).value == value


@pytest.mark.parametrize("body", [{"sample": True}, {"sample": "1"}, {"group_size": 4.5}])
def test_counts_are_whole_numbers(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OpenBody(policy="p", **body)
