"""Two evaluations are compared by the tasks that both have."""

import pytest

from seamlessflow.reports.evaluations.comparison import (
    MCNEMAR,
    PERMUTATION,
    ChangedTask,
    NotComparable,
    SetComparison,
    UncomparedTasks,
    compare,
)
from seamlessflow.reports.evaluations.result import EvaluatedSet, EvaluatedTask


def evaluated(success: float = 1.0, **returns: list[float]) -> EvaluatedSet:
    """Return a set of tasks by their ids, with the returns of their sessions."""
    tasks = {task: EvaluatedTask(task, tuple(values)) for task, values in returns.items()}
    return EvaluatedSet(tasks, success)


def compared(first: EvaluatedSet, second: EvaluatedSet) -> SetComparison:
    return compare({"test": first}, {"test": second}).sets["test"]


def test_a_task_counts_once_whatever_its_sessions() -> None:
    result = compared(evaluated(a=[0, 0, 0, 0], b=[1]), evaluated(a=[1], b=[1, 0]))
    assert (result.reward.first, result.reward.second) == (0.5, 0.75)
    assert result.reward.difference == 0.25
    assert result.reward.test == result.passing.test == PERMUTATION


def test_one_session_a_task_is_tested_by_the_tasks_that_flipped() -> None:
    first = evaluated(a=[0], b=[0], c=[1], d=[1])
    result = compared(first, evaluated(a=[1], b=[1], c=[0], d=[1]))
    assert (result.passing.test, result.passing.p) == (MCNEMAR, 1.0)
    assert [task.task_id for task in result.better] == ["a", "b"]
    assert result.worse == (ChangedTask("c", 1, 0),)


def test_the_most_changed_tasks_come_first() -> None:
    first = evaluated(a=[0, 1], b=[0, 0], c=[0.5, 0.5])
    result = compared(first, evaluated(a=[1, 1], b=[1, 1], c=[0.9, 0.9]))
    assert result.better == (ChangedTask("b", 0, 1), ChangedTask("a", 0.5, 1))


def test_tasks_without_a_partner_are_counted_and_left_out() -> None:
    first = evaluated(a=[1], b=[1], c=[0], d=[])
    result = compared(first, evaluated(a=[1], c=[], d=[1], e=[0], f=[0]))
    assert (result.tasks, result.left_out) == (1, UncomparedTasks(1, 2, 2))


def test_sets_without_a_common_task_are_named() -> None:
    both = {"easy": evaluated(a=[1]), "hard": evaluated(b=[1])}
    result = compare(both, {"easy": evaluated(a=[0]), "new": evaluated(c=[1])})
    assert [*result.sets] == ["easy"]
    assert (result.only_first, result.only_second) == (("hard",), ("new",))


@pytest.mark.parametrize("second", [{}, {"other": ["a"]}, {"test": ["b"]}])
def test_evaluations_that_share_no_task_are_refused(second: dict[str, list[str]]) -> None:
    sets = {name: evaluated(1.0, **{key: [1.0] for key in ids}) for name, ids in second.items()}
    with pytest.raises(NotComparable, match="no set has a task in common"):
        compare({"test": evaluated(a=[1])}, sets)


def test_different_successes_are_refused() -> None:
    with pytest.raises(NotComparable, match="test: a return of 1 passes in the first and one of 0"):
        compared(evaluated(a=[1]), evaluated(0.5, a=[1]))
