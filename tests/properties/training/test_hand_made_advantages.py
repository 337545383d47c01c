"""Every estimator and every option of returns on one small batch, worked out by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt, tanh
from typing import Any

import pytest

from seamlessflow.schemas.records import Reward
from seamlessflow.trainer.credit import OverlongSection, ReturnsSection
from seamlessflow.trainer.data.advantages import ESTIMATORS
from seamlessflow.trainer.data.chains import Column
from seamlessflow.trainer.data.credit.batches import BATCH_ESTIMATORS
from tests.builders.trainer.trajectories import Run
from tests.properties.training.estimation import by_trainer, learner, section
from tests.properties.training.random_sessions import MadeSession, TokenName
from tests.properties.training.told_session import Of

PROMPT = Run([1, 2], "prompt", "p")
TANH = tanh(0.5)
FIRST: list[TokenName] = [("a", 0)]
BOTH: list[TokenName] = [("a", 0), ("a", 1), ("b", 0)]


def session(
    name: str,
    tokens: list[TokenName],
    rewards: Sequence[Reward],
    said: dict[Column | str, list[float]],
    limit: str = "",
) -> MadeSession:
    runs = [PROMPT, Run([3] * min(2, len(tokens)), "policy", "a", 0, 2)]
    if len(tokens) == 3:
        runs += [Run([4], "tool", "x", 1, 2), Run([5], "policy", "b", 2, 1)]
    numbers = {
        Column.PROXIMAL: [-1.0] * len(tokens),
        Column.VIABILITY: [0.0] * len(tokens),
        Column.END_VIABILITY: [0.0] * len(tokens),
        Column.EFFICIENCY: [-2.0, 9.0, -1.0] if len(tokens) == 3 else [0.0],
        Column.END_EFFICIENCY: [1.0] * len(tokens),
        **said,
    }
    of_tokens = {kind: dict(zip(tokens, column, strict=True)) for kind, column in numbers.items()}
    return MadeSession(name, tuple(runs), tuple(rewards), limit, of_tokens)


def columns(
    reference: list[float],
    teacher: list[float],
    value: list[float],
    entropy: list[float],
    top_share: list[float],
) -> dict[Column | str, list[float]]:
    return {
        Column.REFERENCE: reference,
        Column.TEACHER: teacher,
        Column.VALUE: value,
        Column.ENTROPY: entropy,
        Column.TOP_SHARE: top_share,
    }


A = session(
    "A",
    BOTH,
    [Reward(value=0.5, scope="turn", turn_id="a"), Reward(value=1)],
    columns([-1.5, -1, -1], [-0.5, -2, -1], [0.5, 0, 0.25], [1, 1, 1], [1, 0.5, 0.75]),
)
B = session("B", FIRST, [], columns([-2], [-3], [0.5], [3], [0.25]))
"""Without a reward: it was truncated, so that its return is 0."""
D = session("D", FIRST, [Reward(value=0.5)], columns([-1], [-1], [0], [2], [0.75]), "context")
C = session("C", FIRST, [Reward(value=2)], columns([-1], [-1], [1], [2], [0.75]))
BATCH = [[A, B, D], [C]]


@dataclass(frozen=True)
class Case:
    """Advantages of a0, a1 and b0 of A, then of B, D and C."""

    name: str
    advantages: Sequence[float | None]
    """None: the token is not in the loss."""
    options: dict[str, Any] = field(default_factory=dict)
    learned: Sequence[float | None] = (None,) * 6
    """Returns that a critic learns."""
    taught: Mapping[Column, Sequence[float | None]] = field(default_factory=dict)
    """Targets of other values of a critic."""


def over(root: float, *numbers: float) -> list[float]:
    return [number / sqrt(root) for number in numbers]


CASES = [
    # Mean 0.5, variance (0.25 + 0.25 + 0) / 3 = 1/6; C is alone.
    Case("grpo", [sqrt(1.5)] * 3 + [-sqrt(1.5), 0, 0]),
    Case("grpo_unscaled", [0.5, 0.5, 0.5, -0.5, 0, 0]),
    Case("rloo", [0.75, 0.75, 0.75, -0.75, 0, 0]),
    Case("maxrl", [1, 1, 1, -1, 0, 0]),
    # Returns 1, 0, 0.5 and 2 with the variance 35/64.
    Case("grpo_batch", over(35, 4, 4, 4, -4, 0, 0)),
    # As `grpo` in its group; the variance of that over the batch is 3/4.
    Case("gdpo", [sqrt(2)] * 3 + [-sqrt(2), 0, 0]),
    # b: 1; a: 0.5 + 0.5 x 1 = 1, beside 0 and 0.5; b is alone at its depth.
    Case("turn", [sqrt(1.5), sqrt(1.5), 0, -sqrt(1.5), 0, 0], {"returns": {"discount": 0.5}}),
    # All turns but A's first restart, so only its reward of 0.5 is left: as the next case has it.
    Case(
        "turn",
        [sqrt(2), sqrt(2), 0, -sqrt(0.5), -sqrt(0.5), 0],
        {"returns": {"discount": 0.5, "restart_below": 0.25}},
    ),
    # Turn rewards alone: 0.5 beside 0 and 0, mean 1/6, variance 1/18.
    Case(
        "session_and_turn",
        [2 * sqrt(1.5) + 0.5 * sqrt(2)] * 2
        + [2 * sqrt(1.5), -2 * sqrt(1.5) - 0.25 * sqrt(2), -0.25 * sqrt(2), 0],
        {"returns": {"discount": 0.5, "session_weight": 2, "turn_weight": 0.5}},
    ),
    # Rewards -0.25, 0.5, 1; -0.5; 0.5; 2. Returns 1/4, 1, 1; -1/2; 1/2; 2 with the mean 17/24.
    Case(
        "reinforce_pp",
        over(341, -11, 7, 7, -29, -5, 31),
        {"returns": {"token_discount": 0.5}, "kl_penalty": 0.5},
    ),
    # Returns 1, 1, 1/2; -1/2; 0; 0 with the mean 1/3.
    Case("reinforce_pp_baseline", over(11, 4, 4, 1, -5, -2, -2)),
    # Deltas -0.5, 0.625, 0.75; A -19/64, 52/64, 48/64; -1/2; 1/2; 1.
    Case(
        "gae",
        over(48053, -259, 167, 143, -337, 47, 239),
        {"returns": {"token_discount": 0.5, "trace": 0.5}},
        [0.203125, 0.8125, 1, 0, 0.5, 2],
    ),
    # a: 0.5 + 0.5 x 0.25 - 0.5 = 1/8, and 1/4 of b's 3/4.
    Case(
        "turn_gae",
        over(506, -4, -4, 17, -43, 5, 29),
        {"returns": {"discount": 0.5, "trace": 0.5}},
        [0.8125, None, 1, 0, 0.5, 2],
    ),
    # With every chance 1/2, a gains 0, b 1 and C 0 turns: 1, 1 + tanh(1/2), 1, and twice 0.
    Case(
        "habc",
        [5 / (3 + TANH)] * 2 + [5 * (1 + TANH) / (3 + TANH), 0, 0, 5 / (3 + TANH)],
        {"critic": {"warmup_steps": 0}},
        taught={
            Column.VIABILITY: [1, None, 1, 0, 0, 1],
            Column.END_VIABILITY: [None, None, 1, 0, 0, 1],
            Column.EFFICIENCY: [-2, None, 0, None, None, 0],
            Column.END_EFFICIENCY: [None, None, 0, None, None, 0],
        },
    ),
    # D succeeds too.
    Case(
        "habc",
        [1.25, 1.25, 1.25, 0, 1.25, 1.25],
        {"critic": {"warmup_steps": 1, "passes": 0.5}},
        taught={
            Column.VIABILITY: [1, None, 1, 0, 1, 1],
            Column.END_VIABILITY: [None, None, 1, 0, 1, 1],
            Column.EFFICIENCY: [-2, None, 0, None, 0, 0],
            Column.END_EFFICIENCY: [None, None, 0, None, 0, 0],
        },
    ),
    Case("distill", [0.5, -1, 0, -2, 0, 0]),
    # Mean entropy 10/6: h is 0.6, 1.8, 1.2 and 1.2.
    Case(
        "grpo",
        [0.8 * sqrt(1.5)] * 3 + [-1.4 * sqrt(1.5), 0, 0],
        {"returns": {"entropy_scale": 0.5}},
    ),
    # Entropies: mean 5/3, variance 5/9, so -2, -2, -2, 4, 1, 1 by the root of 5. Shares: mean 2/3,
    # variance 1/18, so 4, -2, 1, -5, 1, 1 by the root of 8. The difference of a0 is below -2, that
    # of B above 2.
    Case(
        "grpo",
        [
            sqrt(1.5) * 0.5,
            sqrt(1.5) * (1 + (2 / sqrt(8) - 2 / sqrt(5)) / 4),
            sqrt(1.5) * (1 - (1 / sqrt(8) + 2 / sqrt(5)) / 4),
            -sqrt(1.5) * 1.5,
            0,
            0,
        ],
        {"returns": {"hybrid_scale": 0.25}},
    ),
    Case(
        "grpo",
        [0.5 / (sqrt(1 / 6) + 0.25)] * 3 + [-0.5 / (sqrt(1 / 6) + 0.25), 0, 0],
        {"returns": {"epsilon": 0.25}},
    ),
    # Variance (0.25 + 0.25 + 0) / 2 = 1/4.
    Case("grpo", [1, 1, 1, -1, 0, 0], {"returns": {"deviation": "sample"}}),
    # A has 3 tokens: half of the way from 2 to 4, so 0.5 less.
    Case(
        "grpo_unscaled",
        [1 / 6, 1 / 6, 1 / 6, -1 / 3, 1 / 6, 0],
        {"overlong": {"length": 4, "cache": 2}},
    ),
    # A is at the length, so 3 less; D is masked and counts in the mean, which is -0.5.
    Case(
        "grpo_unscaled",
        [-1.5, -1.5, -1.5, 0.5, None, 0],
        {"overlong": {"length": 3, "cache": 2, "weight": 3, "masked": ["context"]}},
    ),
]


def test_every_estimator_and_option_has_a_case_by_hand() -> None:
    assert {case.name for case in CASES} == {*ESTIMATORS, *BATCH_ESTIMATORS}
    for part, fields in (
        ("returns", ReturnsSection.model_fields),
        ("overlong", OverlongSection.model_fields),
    ):
        assert {name for case in CASES for name in case.options.get(part, {})} == set(fields), part
    assert any("kl_penalty" in case.options for case in CASES)


def of_batch(values: Sequence[float | None], value: Column = Column.VALUE) -> Of:
    tokens = [
        (learner(made.name, value), token)
        for made in (A, B, D, C)
        for token in (BOTH if made is A else FIRST)
    ]
    pairs = zip(tokens, values, strict=True)
    return {token: value for token, value in pairs if value is not None}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_advantages_are_those_worked_out_by_hand(case: Case) -> None:
    returns = {"epsilon": 0.0, **case.options.get("returns", {})}
    advantages, learned = by_trainer(
        BATCH, section(case.name, **{**case.options, "returns": returns})
    )
    assert advantages == pytest.approx(of_batch(case.advantages), rel=1e-6, abs=1e-7)
    expected = of_batch(case.learned)
    for value, targets in case.taught.items():
        expected |= of_batch(targets, value)
    assert learned == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_sessions_that_are_not_selected_have_no_part_in_the_mean_of_the_tokens() -> None:
    """D lies in the middle of its group, so it is left out and its baseline is not."""
    selection = {"name": "extremes", "best": 1, "worst": 1, "baseline": "all"}
    returns = {"hybrid_scale": 0.25, "epsilon": 0.0}
    selected, _ = by_trainer(BATCH, section("rloo", selection=selection, returns=returns))
    assert {name for name, _ in selected} == {"A", "B", "C"}
    without, _ = by_trainer([[A, B], [C]], section("rloo", returns=returns))
    # A has 1 - 1/4 with D in its baseline and 1 without it, B 0 - 3/4 and -1.
    assert selected == pytest.approx({name: 0.75 * value for name, value in without.items()})
