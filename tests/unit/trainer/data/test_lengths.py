"""Lengths of sessions: quantiles, and those of the sessions that enter the loss."""

from seamlessflow.trainer.data.batch import Batch, prepare
from seamlessflow.trainer.data.figures.of_batch import facts
from seamlessflow.trainer.data.lengths import cost_of, first_prompt_tokens, prompt_tokens, quantiles
from seamlessflow.trainer.data.staleness import StepClock
from tests.builders.trainer.groups import RULES, group
from tests.builders.trainer.trajectories import Run, trajectory

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


def test_a_step_has_the_tokens_of_all_first_prompts() -> None:
    equal = prepare(group("g", 1, 1), CLOCK, RULES)
    assert facts(Batch(0, (equal,)), CLOCK)["prompt_tokens/mean"] == 2


def test_a_session_without_an_answer_has_no_first_prompt() -> None:
    assert first_prompt_tokens(trajectory([Run([1, 2, 3], "prompt")])) == 0


def test_each_turn_counts_all_tokens_before_its_answer() -> None:
    session = trajectory(
        [
            Run([1, 2, 3], "prompt"),
            Run([4, 5], parent=0, parent_end=3),
            Run([6, 7, 8, 9], "tool", "t1", parent=1, parent_end=2),
            # The second turn paused, and went on.
            Run([10], turn="t1", parent=2, parent_end=4),
            Run([11, 12], turn="t1", parent=3, parent_end=1),
            # The third goes on from the middle of the first answer.
            Run([13], "prompt", "t2", parent=1, parent_end=1),
            Run([14, 15, 16], turn="t2", parent=5, parent_end=1),
        ]
    )
    assert prompt_tokens(session) == 3 + 9 + 5
    assert first_prompt_tokens(session) == 3
    assert cost_of(session) == (session.turns, 8, 17)
