"""Rounds of a run are compared by their tasks."""

from seamlessflow.reports.evaluations.recorded import recorded_sets
from seamlessflow.schemas.records import GroupAdmitted, GroupReady, Record
from tests.builders.records import control


def admitted(version: int, task: str, split: str = "test", purpose: str = "eval") -> GroupAdmitted:
    name = f"{version}-{split}-{task}"
    return control.admitted(name, task, version=version, split=split, purpose=purpose)


def ready(group: GroupAdmitted, *returns: float) -> GroupReady:
    ones = (1,) * len(returns)
    costs = {"turns": ones, "lengths": ones, "prompt_tokens": ones}
    return control.ready(group.group_id, returns=returns, **costs)


def a_round(version: int, split: str, **returns: float) -> list[Record]:
    """Return the records of a round whose tasks have one session each."""
    groups = {task: admitted(version, task, split) for task in returns}
    ended = [ready(groups[task], value) for task, value in returns.items()]
    return [*groups.values(), *ended, control.evaluated(version, split, 0.5)]


def returns_of(log: list[Record], version: int | None = None) -> dict[str, dict[str, list[float]]]:
    return {
        name: {task.task_id: list(task.returns) for task in evaluated.tasks.values()}
        for name, evaluated in recorded_sets(log, version).items()
    }


def test_the_newest_round_of_each_set_counts_or_that_of_a_version() -> None:
    log = [
        *a_round(0, "test", a=0.0, b=0.25),
        *a_round(0, "hard", c=0.0),
        *a_round(4, "test", a=1.0, b=0.5),
        admitted(8, "a"),
    ]
    assert returns_of(log) == {"test": {"a": [1.0], "b": [0.5]}, "hard": {"c": [0.0]}}
    assert returns_of(log, 0)["test"] == {"a": [0.0], "b": [0.25]}
    assert returns_of(log, 8) == {}, "its round is not over"


def test_a_dropped_task_has_no_session_and_trained_groups_are_none() -> None:
    kept, lost, trained = admitted(0, "a"), admitted(0, "b"), admitted(0, "c", purpose="train")
    log = [kept, lost, trained, ready(kept, 1.0, 0.5), ready(trained, 1.0)]
    log += [control.dropped(lost.group_id), control.evaluated(0, "test", 1.0, success=0.5)]
    assert returns_of(log) == {"test": {"a": [1.0, 0.5], "b": []}}
    (evaluated,) = recorded_sets(log, None).values()
    assert evaluated.success == 0.5
    assert [len(task.costs) for task in evaluated.tasks.values()] == [2, 0]


def test_a_log_without_costs_is_compared_too() -> None:
    group = admitted(0, "a")
    old = control.ready(group.group_id, returns=(1.0,), turns=(1,))
    log = [group, old, control.evaluated(0, "test", 1.0)]
    (task,) = recorded_sets(log, None)["test"].tasks.values()
    assert (task.returns, task.costs) == ((1.0,), ())
