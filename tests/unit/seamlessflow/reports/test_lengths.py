"""Lengths of the sessions of a run: those begun, those trained, and a bias between them."""

from dataclasses import replace
from pathlib import Path

from seamlessflow.reports.charts import plot_lengths
from seamlessflow.reports.lengths import bias, length_figures
from seamlessflow.reports.reward_curve import SessionFacts, session_facts, step_facts
from seamlessflow.schemas.records import StepGroup
from tests.builders.records import control
from tests.builders.trainer.trajectories import one_turn

PNG = b"\x89PNG"


def facts(tokens: int, turns: int = 1, fate: str = "ended", purpose: str = "train") -> SessionFacts:
    return SessionFacts(
        purpose=purpose,
        reward=1.0,
        turns=turns,
        tokens_sampled=tokens,
        interrupted_turns=0,
        fate=fate,
    )


SESSIONS = {
    "a": facts(10),
    "b": facts(20, turns=3),
    "c": facts(90, fate="pruned"),
    "d": facts(80),
    "e": facts(1000, purpose="eval"),
}
STEPS = step_facts(
    [
        control.committed(0, trained_tokens={"a": 10}),
        control.committed(1, version=2, trained_tokens={"a": 10, "b": 5}),
    ],
    SESSIONS,
)


def test_begun_are_all_sessions_for_training_and_trained_those_whose_tokens_were() -> None:
    figures = length_figures(SESSIONS, STEPS)
    assert (figures["begun"]["sessions"], figures["trained"]["sessions"]) == (4, 2)
    quantiles = {"p10": 13.0, "p50": 50.0, "p90": 87.0, "p99": 89.7, "mean": 50.0}
    assert figures["begun"]["tokens"] == quantiles
    assert figures["trained"]["turns"]["mean"] == 2
    assert figures["not_trained"] == {"ended": 1, "pruned": 1}


def test_a_bias_to_short_episodes_is_said_and_a_small_difference_is_not() -> None:
    warning = bias(length_figures(SESSIONS, STEPS))
    assert warning is not None
    assert "70% shorter than those begun, 15 against 50 sampled tokens" in warning
    assert "a bias to short episodes (not trained: 1 ended, 1 pruned)" in warning
    alike = {**SESSIONS, "c": facts(16), "d": facts(16)}
    assert bias(length_figures(alike, STEPS)) is None


def test_groups_of_equal_rewards_are_no_bias_whatever_their_length() -> None:
    rewards = {"a": (10, 0.0), "b": (20, 1.0), "f": (200, 0.0), "g": (200, 0.0)}
    sessions = {
        name: replace(facts(length), reward=reward) for name, (length, reward) in rewards.items()
    }
    short, long = (StepGroup(group_id=name, sessions=tuple(name)) for name in ("ab", "fg"))
    trained = {"a": 10, "b": 20}
    counted = [control.committed(0, groups=[short, long], trained_tokens=trained)]
    dropped = [
        control.ready("fg", sessions=("f", "g")),
        control.dropped("fg", "filtered"),
        control.committed(0, groups=[short], trained_tokens=trained),
    ]
    for records in (counted, dropped):
        figures = length_figures(sessions, step_facts(records, sessions))
        assert figures["not_trained"] == {"ended": 2}
        assert figures["taken"]["sessions"] == 4
        assert bias(figures) is None
    # Those of which no step had the group are lost, such as stale ones, and are a bias.
    assert "86% shorter" in str(bias(length_figures(sessions, step_facts(dropped[2:], sessions))))


def test_a_log_that_does_not_tell_what_was_trained_has_no_figures(tmp_path: Path) -> None:
    silent = step_facts([control.committed(0)], SESSIONS)
    assert length_figures(SESSIONS, silent) == {}
    assert bias({}) is None
    plot_lengths(SESSIONS, silent, tmp_path / "lengths.png")
    assert not (tmp_path / "lengths.png").exists()


def test_the_fate_of_a_session_is_that_of_its_trajectory() -> None:
    ended = one_turn("ended", 1.0)
    others = {"pruned": ("pruned", "setting"), "failed": ("aborted", "environment")}
    sessions = session_facts(
        [
            ended,
            *(
                replace(ended, session_id=name, status=status, cause=cause)
                for name, (status, cause) in others.items()
            ),
        ]
    )
    assert {name: session.fate for name, session in sessions.items()} == {
        name: name for name in sessions
    }


def test_the_chart_is_written(tmp_path: Path) -> None:
    plot_lengths(SESSIONS, STEPS, tmp_path / "lengths.png")
    assert (tmp_path / "lengths.png").read_bytes().startswith(PNG)
