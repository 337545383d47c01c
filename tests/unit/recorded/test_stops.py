"""A rule tried on recorded turns: tokens saved and passes lost, counted by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.producers.rollout.control.contract import TurnFacts
from seamlessflow.recorded.stops import (
    LikeliestMissing,
    Tried,
    TriedSession,
    TriedTurn,
    grid,
    proposed,
    tried,
)
from tests.builders.rollout.controlled import even

FACTS = TurnFacts(prompt_length=3, max_tokens=100, temperature=1.0, tools=False)
SURE, UNSURE = 20, 5
"""Numbers of equally likely tokens: by its own measure a rule is surer of one of twenty."""


def turn(counts: Sequence[int], ids: Sequence[int] | None = None, top: int = 20) -> TriedTurn:
    """Return a turn whose tokens were each one of so many equally likely ones."""
    likeliest = np.array([even(count) for count in counts], np.float32)[:, :top]
    return TriedTurn(FACTS, ids or [0] * len(counts), [-0.5] * len(counts), likeliest, thought=4)


SESSIONS = [
    TriedSession([turn([SURE] * 10), turn([UNSURE] * 10)], passed=True),
    TriedSession([turn([UNSURE] * 6), turn([SURE] * 10)], passed=False),
    TriedSession([turn([SURE] * 10)], passed=True),
]


def test_tokens_behind_the_verdict_are_saved_and_passes_of_stopped_sessions_are_lost() -> None:
    (outcome,) = tried("confidence", [{"floor": 1.7}], SESSIONS)
    assert (outcome.turns, outcome.turns_stopped) == (5, 2)
    assert (outcome.tokens, outcome.tokens_saved) == (46, 6 + 2)
    assert (outcome.sessions, outcome.sessions_stopped) == (3, 2)
    assert (outcome.passes, outcome.passes_lost) == (2, 1)
    assert outcome.reasons == {"floor": 2}


def test_a_verdict_on_the_session_saves_its_later_turns_too() -> None:
    (outcome,) = tried("confidence", [{"floor": 1.7, "ends": "session"}], SESSIONS)
    assert outcome.tokens_saved == 6 + (2 + 10)


def test_a_budget_counts_the_thinking_that_is_recorded() -> None:
    within, beyond = tried("budget", [{"tokens": 4}, {"tokens": 3}], SESSIONS[2:])
    assert (within.turns_stopped, beyond.tokens_saved) == (0, 6)


def test_a_rule_of_the_user_s_own_is_tried_with_its_settings() -> None:
    name = "examples.methods.control:Unlikely"
    low, high = tried(name, [{"below": b, "window": 4} for b in (-1.0, 0.0)], SESSIONS)
    assert (low.turns_stopped, high.turns_stopped) == (0, 5)


def test_proposed_thresholds_stop_more_and_more_turns() -> None:
    turns = [turn([SURE] * 20 + [count] * 20) for count in range(6, 20) for _ in range(3)]
    sessions = [TriedSession([each], passed=False) for each in turns]
    outcomes = tried("confidence", None, sessions)
    for name in ("floor", "tail"):
        stopped = [each.turns_stopped for each in outcomes if name in each.settings]
        assert len(stopped) >= 2 and stopped == sorted(stopped)
    assert proposed("repetition", turns) == [{}]


def test_a_run_without_likeliest_tokens_is_told_how_to_record_them() -> None:
    sessions = [TriedSession([turn([SURE] * 5, top=2)], passed=True)]
    with pytest.raises(LikeliestMissing, match=r"none of the 1 turns .*record_top: 20"):
        tried("confidence", None, sessions)
    with pytest.raises(LikeliestMissing, match="no turn of training yet"):
        tried("repetition", None, [])
    assert isinstance(tried("repetition", None, sessions)[0], Tried)


def test_settings_with_several_values_are_combined() -> None:
    assert grid(["floor=1.7,2", "ends=session"]) == [
        {"floor": 1.7, "ends": "session"},
        {"floor": 2, "ends": "session"},
    ]
    with pytest.raises(SettingsRejected, match="floor is not NAME=VALUE"):
        grid(["floor"])


@pytest.mark.parametrize(
    ("rule", "settings", "why"),
    [
        ("confidence", {"floor": 1.2}, "floor 1.2 can never stop a turn"),
        ("budget", {}, "missing"),
        ("surprise", {}, "none of confidence, repetition, budget"),
    ],
)
def test_what_can_never_be_tried_is_refused(
    rule: str, settings: dict[str, float], why: str
) -> None:
    with pytest.raises(SettingsRejected, match=why):
        tried(rule, [settings], SESSIONS)
