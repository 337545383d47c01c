from dataclasses import replace
from typing import Any

from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.runs.evaluation import MOST_ATTEMPTS, Evaluation, EvaluationPlan
from seamlessflow.scheduler.tasks.source import TaskRow
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Trajectory
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.credit.returns import RewardWeights
from tests.builders.records import sessions
from tests.builders.trajectories.session_builder import SessionBuilder

ROWS = [TaskRow("a", b'{"id":"a"}', {"level": "1"}), TaskRow("b", b'{"id":"b"}', {})]


def evaluation(samples: int = 1, weights: RewardWeights = ONE_REWARD) -> Evaluation:
    return Evaluation(EvaluationPlan("run-held", "p", "test", ROWS, samples, 10, weights))


def finalized(session: str, reward: float | None, cause: str = "policy") -> Trajectory:
    rewards: list[Any] = [] if reward is None else [sessions.rewarded(reward)]
    built = SessionBuilder().apply(
        sessions.opened(session_id=session),
        *rewards,
        sessions.closed(cause=cause),
        sessions.finalized(),
    )
    return trajectory(built.session, 0)


def test_every_task_is_issued_once_a_sample_as_an_evaluation() -> None:
    tasks = evaluation(samples=2).first_tasks(1_000)
    assert [(task.group_id, task.sample) for task in tasks] == [
        ("run-held-0", 0),
        ("run-held-0", 1),
        ("run-held-1", 0),
        ("run-held-1", 1),
    ]
    assert {(task.purpose, task.split, task.group_size) for task in tasks} == {("eval", "test", 2)}
    assert (tasks[0].payload, tasks[0].metadata, tasks[0].task_id) == (*_first_row(), "a")
    assert tasks[0].deadline_ms == 11_000


def test_every_attempt_is_sampled_as_the_plan_says() -> None:
    greedy = replace(evaluation().plan, overrides=r.Sampling(temperature=0))
    current = Evaluation(greedy)
    tasks = current.first_tasks(0)
    again = current.apply(finalized("run-held-0.0.0", 0.0, "environment"), 1)
    assert [task.overrides for task in (*tasks, *again)] == [r.Sampling(temperature=0)] * 3
    assert [task.overrides for task in evaluation().first_tasks(0)] == [None] * 2


def _first_row() -> tuple[bytes, Any]:
    return ROWS[0].payload, ROWS[0].metadata


def test_the_result_is_the_mean_over_all_sessions() -> None:
    current = evaluation()
    current.first_tasks(0)
    assert current.apply(finalized("run-held-0.0.0", 1.0), 1) == []
    assert not current.done
    current.apply(finalized("run-held-1.0.0", 0.0), 1)
    assert current.done
    result = current.result()
    assert (result.reward, result.error, result.sessions, result.missing) == (0.5, 0.5, 2, 0)


def test_several_sessions_of_a_task_are_one_cluster_and_have_a_chance_to_pass() -> None:
    current = evaluation(samples=2)
    current.first_tasks(0)
    for number, sample, reward in ((0, 0, 1.0), (0, 1, 0.0), (1, 0, 0.0)):
        current.apply(finalized(f"run-held-{number}.{sample}.0", reward), 1)
    assert current.result().pass_at == {1: 0.25}, "one task has one session so far"
    current.apply(finalized("run-held-1.1.0", 0.0), 1)
    result = current.result()
    assert result.pass_at == {1: 0.25, 2: 0.5}
    assert str(result) == (
        "mean reward 0.2500 ± 0.2500 over 4 sessions (0 failed, 0 missing), "
        "pass@1 0.250, pass@2 0.500"
    )
    assert str(evaluation().result()).startswith("no session counted, 0 failed, 2 missing")


def test_sessions_of_others_and_repeated_ones_do_not_count() -> None:
    current = evaluation()
    current.first_tasks(0)
    current.apply(finalized("train-0.0.0", 1.0), 1)
    for _ in range(2):
        current.apply(finalized("run-held-0.0.0", 1.0), 1)
    assert current.result().sessions == 1


def test_a_spoilt_session_is_tried_again_and_given_up_in_the_end() -> None:
    current = evaluation()
    current.first_tasks(0)
    current.apply(finalized("run-held-1.0.0", 1.0), 1)
    for attempt in range(MOST_ATTEMPTS):
        assert not current.done
        spoilt = finalized(f"run-held-0.0.{attempt}", None, cause="infrastructure")
        again: list[r.Task] = current.apply(spoilt, 1)
        assert [task.attempt for task in again] == [attempt + 1][: MOST_ATTEMPTS - attempt - 1]
    assert current.done
    result = current.result()
    assert (result.sessions, result.failed, result.missing) == (1, MOST_ATTEMPTS, 1)
    assert [(failure.cause, failure.attempt) for failure in current.failures] == [
        ("infrastructure", attempt) for attempt in range(MOST_ATTEMPTS)
    ]


def test_a_judge_that_failed_runs_no_agent_again() -> None:
    current = evaluation()
    current.first_tasks(0)
    assert current.apply(finalized("run-held-0.0.0", None, cause="judge"), 1) == []
    assert [failure.cause for failure in current.failures] == ["judge"]


def test_a_session_without_a_reward_does_not_count() -> None:
    current = evaluation()
    current.first_tasks(0)
    assert len(current.apply(finalized("run-held-0.0.0", None), 1)) == 1


def test_returns_are_those_of_the_runs_weights_and_a_missing_reward_is_named() -> None:
    current = evaluation(weights={"test": 1.0})
    current.first_tasks(0)
    assert len(current.apply(finalized("run-held-0.0.0", 1.0), 1)) == 1
    (failed,) = current.failures
    assert failed.detail == "complete: closed without the reward 'test'; it has 'reward'"
    halved = evaluation(weights={"reward": 0.5})
    halved.first_tasks(0)
    halved.apply(finalized("run-held-0.0.0", 1.0), 1)
    assert halved.result().reward == 0.5


def test_each_task_keeps_its_sessions_that_counted_with_their_costs() -> None:
    current = evaluation(samples=2)
    current.first_tasks(0)
    for sample, reward in ((1, 0.25), (0, 1.0)):
        current.apply(finalized(f"run-held-0.{sample}.0", reward), 1)
    solved, spoilt = current.result().tasks
    assert (solved.task_id, solved.returns) == ("a", (1.0, 0.25)), "in the order of the samples"
    assert (spoilt.task_id, spoilt.returns, spoilt.costs) == ("b", (), ())
    assert [cost.turns for cost in solved.costs] == [0, 0]
