"""Lengths of sessions: quantiles, and those that ended since the last step."""

from dataclasses import replace

from tests.builders.trainer.groups import RULES, group
from tests.builders.trainer.trajectories import one_turn
from trainer.data.batch import Batch, prepare
from trainer.data.figures.of_batch import facts
from trainer.data.lengths import SessionsOfStep, quantiles
from trainer.data.staleness import StepClock

CLOCK = StepClock({}, 0)


def test_quantiles_and_mean() -> None:
    assert quantiles(range(11)) == {"p10": 1, "p50": 5, "p90": 9, "mean": 5}
    assert quantiles([]) == {}


def test_ended_sessions_are_counted_whatever_became_of_them_and_begin_anew() -> None:
    ended, session = SessionsOfStep(), one_turn("s", 1.0)
    ended.add(session)
    ended.add(replace(session, status="pruned", cause="setting", turns=3))
    found = ended.take()
    assert (found["begun_tokens/mean"], found["begun_turns/mean"]) == (3, 2)
    assert found["sessions_pruned"] == 1
    assert ended.take() == {}


def test_a_step_has_the_lengths_and_tokens_of_the_sessions_that_enter_the_loss() -> None:
    trained = prepare(group("g-0", 1, 0), CLOCK, RULES)
    equal = prepare(group("g-1", 1, 1), CLOCK, RULES)
    batch = Batch(0, (trained, equal))
    assert equal.filtered and set(batch.trained_tokens()) == {
        one.source.session_id for one in trained.group.sessions
    }
    assert sum(batch.trained_tokens().values()) == batch.trained()
    assert "trained_tokens/p50" in facts(batch, CLOCK)
    assert "trained_tokens/p50" not in facts(Batch(0, (equal,)), CLOCK)
