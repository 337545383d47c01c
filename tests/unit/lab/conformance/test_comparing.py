"""Two implementations of an environment, in memory: what differs, and at which step."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from seamlessflow.lab.conformance.comparing import (
    ComparedState,
    ConformanceResult,
    EpisodeRules,
    StateDifference,
    compare_environments,
    lines,
)
from tests.seed import seed as drawn_seed

LENGTH = 12
Change = Callable[[int, int, ComparedState], ComparedState]
"""Returns another state, by seed, step and state."""


class Counting:
    """An environment whose observation is the sum of its actions; its episodes have 12 steps."""

    def __init__(self, change: Change = lambda seed, step, state: state) -> None:
        self.name = "counting"
        self.taken: list[tuple[int, list[int]]] = []
        self.change = change

    def reset(self, seed: int) -> ComparedState:
        self.taken.append((seed, []))
        return self.state()

    def step(self, action: Any) -> ComparedState:
        self.taken[-1][1].append(action)
        return self.state()

    def state(self) -> ComparedState:
        seed, actions = self.taken[-1]
        state = ComparedState(sum(actions), [1, 2, 3], 0.5 * len(actions), len(actions) == LENGTH)
        return self.change(seed, len(actions), state)


def compared(
    change: Change, seeds: Sequence[int] = range(5), **rules: Any
) -> tuple[ConformanceResult, Counting]:
    first = Counting()
    return compare_environments(first, Counting(change), seeds, EpisodeRules(**rules)), first


def planted(at: tuple[int, int], **fields: Any) -> Change:
    """Return a change of one state: that behind so many steps of a seed."""
    return lambda seed, step, state: state._replace(**fields) if (seed, step) == at else state


def test_equal_ones_have_no_difference_and_get_the_same_actions() -> None:
    first, second = Counting(), Counting()
    result = compare_environments(first, second, range(20), EpisodeRules())
    assert (result.difference, result.episodes, result.steps, result.cut) == (None, 20, 240, 0)
    assert first.taken == second.taken
    assert {action for _, actions in first.taken for action in actions} == {1, 2, 3}
    assert len({tuple(actions) for _, actions in first.taken}) == 20, "each seed has its own"


@pytest.mark.parametrize(
    ("part", "value"),
    [("observation", "none"), ("reward", 7.0), ("done", True), ("actions", [1, 2])],
)
def test_a_planted_difference_is_located_to_the_step(part: str, value: Any) -> None:
    draw = random.Random(f"{drawn_seed} {part}")
    for _ in range(50):
        seed, step = draw.randrange(5), draw.randrange(LENGTH)
        result, first = compared(planted((seed, step), **{part: value}))
        difference = result.difference
        assert isinstance(difference, StateDifference), f"seed {drawn_seed}"
        assert (difference.seed, difference.step, difference.part) == (seed, step, part)
        assert difference.values[1] == value
        assert difference.actions == first.taken[-1][1] and len(difference.actions) == step
        assert (result.episodes, result.steps) == (seed, seed * LENGTH)


def test_the_actions_of_a_seed_do_not_depend_on_the_seeds_before_it() -> None:
    for seeds in ([3], [1, 2, 3]):
        _, first = compared(planted((9, 9)), seeds)
        assert first.taken[-1] == compared(planted((9, 9)), [3])[1].taken[-1]


def test_the_order_of_possible_actions_does_not_count() -> None:
    result, _ = compared(lambda seed, step, state: state._replace(actions=[3, 1, 2]))
    assert result.difference is None


def test_actions_behind_the_end_do_not_count() -> None:
    def none_at_the_end(seed: int, step: int, state: ComparedState) -> ComparedState:
        return state._replace(actions=[]) if state.done else state

    assert compared(none_at_the_end)[0].difference is None


@pytest.mark.parametrize(
    ("value", "other", "alike"),
    [
        (1, 1.0, True),
        (1.0, 1.05, True),
        (1.0, 1.2, False),
        ([1.0, {"x": 2.0}], [1.01, {"x": 2.09}], True),
        ([1.0, {"x": 2.0}], [1.0, {"x": 2.2}], False),
        ({"x": 1}, {"x": 1, "y": 1}, False),
        ([1], [1, 1], False),
        (1, True, False),
        (0, None, False),
        ("1", 1, False),
        ([1], {"1": 1}, False),
        (None, None, True),
    ],
)
def test_numbers_within_the_tolerance_are_alike_wherever_they_stand(
    value: Any, other: Any, alike: bool
) -> None:
    for pair in ((value, other), (other, value)):
        shown = iter(pair)
        first, second = (Counting(_observed(next(shown))) for _ in range(2))
        result = compare_environments(first, second, [0], EpisodeRules(tolerance=0.1))
        assert (result.difference is None) == alike


def _observed(value: Any) -> Change:
    return lambda seed, step, state: state._replace(observation=value)


def test_an_episode_is_cut_at_the_most_steps() -> None:
    result, _ = compared(planted((0, 9), reward=9.0), most_steps=8)
    assert (result.difference, result.steps, result.cut) == (None, 40, 5)
    assert list(lines(result, ("a", "b"))) == [
        "equal: 5 episodes, 40 steps",
        "5 episodes were not over at the most steps (--steps)",
    ]


def test_a_difference_is_shown_with_both_sides_and_the_actions_before_it() -> None:
    result, first = compared(planted((2, 2), observation={"é": [1]}))
    before, newest = first.taken[-1][1]
    assert list(lines(result, ("mine:a", "theirs:b"))) == [
        "seed 2, step 2: observation differs",
        f"  mine:a    {before + newest}",
        '  theirs:b  {"é": [1]}',
        f"  action    {newest}",
        f"  before it  {before}",
        "2 episodes before it are equal",
        "again: --first 2 --seeds 1",
    ]


def test_a_difference_behind_reset_has_no_action() -> None:
    result, _ = compared(planted((0, 0), observation="x" * 1000))
    shown = list(lines(result, ("a", "b")))
    assert shown[:2] == ["seed 0, reset: observation differs", "  a  0"]
    assert len(shown[2]) < 500
    assert shown[3:] == ["0 episodes before it are equal", "again: --first 0 --seeds 1"]
