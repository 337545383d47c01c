"""Every estimator and every option of returns against formulas that share no code with them."""

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from seamlessflow.trainer.credit import (
    TOKEN_REWARDS,
    EstimatorName,
    OverlongSection,
    ReturnsSection,
)
from seamlessflow.trainer.data.advantages import ESTIMATORS
from seamlessflow.trainer.data.credit.batches import BATCH_ESTIMATORS
from tests.properties.training.advantage_formulas import FORMULAS, by_formula
from tests.properties.training.estimation import by_trainer, section
from tests.properties.training.random_sessions import MadeSession, batches
from tests.properties.training.told_session import Of

NAMES = sorted({*ESTIMATORS, *BATCH_ESTIMATORS})
shares = st.sampled_from([0.0, 0.25, 0.5, 1.0])
RETURNS: dict[str, st.SearchStrategy[Any]] = {
    "discount": shares,
    "session_weight": st.sampled_from([0.0, 1.0, 1.5]),
    "turn_weight": st.sampled_from([0.0, 1.0, 2.5]),
    "token_discount": shares,
    "trace": shares,
    "epsilon": st.sampled_from([0.0, 1e-6, 0.25]),
    "deviation": st.sampled_from(["population", "sample"]),
    "restart_below": st.sampled_from([None, 0.0, 0.5]),
    "entropy_scale": shares,
    "hybrid_scale": st.sampled_from([0.0, 0.125, 0.5]),
}
OVERLONG: dict[str, st.SearchStrategy[Any]] = {
    "length": st.sampled_from([5, 9]),
    "cache": st.sampled_from([1, 4]),
    "weight": st.sampled_from([0.5, 2.0]),
    "masked": st.sampled_from([(), ("context",)]),
}


def test_every_estimator_and_option_has_a_formula() -> None:
    assert sorted(FORMULAS) == NAMES == sorted(get_args(EstimatorName))
    assert set(RETURNS) == set(ReturnsSection.model_fields)
    assert set(OVERLONG) == set(OverlongSection.model_fields)


@st.composite
def options(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Draw settings of an estimator, with each of its options or none."""
    choices: dict[str, Any] = {"returns": draw(st.fixed_dictionaries(RETURNS))}
    if name == "session_and_turn":  # both 0 are refused
        assume(choices["returns"]["session_weight"] or choices["returns"]["turn_weight"])
    if name in TOKEN_REWARDS:
        choices["kl_penalty"] = draw(st.sampled_from([0.0, 0.5]))
    if name == "habc":
        passes, warmup_steps = (draw(st.sampled_from(values)) for values in ([-1, 0, 0.5], [0, 1]))
        choices["critic"] = {"passes": passes, "warmup_steps": warmup_steps}
    punished = name not in ("distill", "gdpo", "maxrl")
    rules = dict(OVERLONG) if punished else {"masked": OVERLONG["masked"]}
    if name == "gdpo":
        choices["rewards"] = {"reward": draw(st.sampled_from([1.0, -2.0]))}
    choices["overlong"] = draw(st.just({}) | st.fixed_dictionaries(rules))
    return choices


def _rewarded(made: MadeSession) -> MadeSession:
    """Return the session with no reward below 0."""
    return replace(
        made, rewards=tuple(replace(reward, value=abs(reward.value)) for reward in made.rewards)
    )


def assert_equal(numbers: Of, wanted: Of) -> None:
    assert numbers.keys() == wanted.keys()
    assert numbers == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data(), batch=batches())
@settings(max_examples=50)
def test_advantages_are_those_of_the_formula(
    name: str, data: st.DataObject, batch: list[list[MadeSession]]
) -> None:
    chosen = section(name, **data.draw(options(name)))
    if name == "maxrl":
        batch = [[_rewarded(session) for session in group] for group in batch]
    advantages, learned = by_trainer(batch, chosen)
    expected, returns = by_formula(batch, chosen)
    assert_equal(advantages, expected)
    assert_equal(learned, returns)
