"""Lengths of sessions: quantiles, and those of the sessions that enter the loss."""

from seamlessflow.trainer.data.batch import Batch, prepare
from seamlessflow.trainer.data.figures.of_batch import facts
from seamlessflow.trainer.data.lengths import quantiles
from seamlessflow.trainer.data.staleness import StepClock
from tests.builders.trainer.groups import RULES, group

CLOCK = StepClock({}, 0)


def test_quantiles_and_mean() -> None:
    assert quantiles(range(101)) == {"p10": 10, "p50": 50, "p90": 90, "p99": 99, "mean": 50}
    assert quantiles([]) == {}


def test_a_step_has_the_lengths_and_tokens_of_the_sessions_that_enter_the_loss() -> None:
    trained = prepare(group("g-0", 1, 0), CLOCK, RULES)
    equal = prepare(group("g-1", 1, 1), CLOCK, RULES)
    batch = Batch(0, (trained, equal))
    assert equal.filtered and set(batch.trained_tokens()) == {
        member.source.session_id for member in trained.group.sessions
    }
    assert sum(batch.trained_tokens().values()) == batch.trained()
    assert "trained_tokens/p50" in facts(batch, CLOCK)
    assert "trained_tokens/p50" not in facts(Batch(0, (equal,)), CLOCK)
