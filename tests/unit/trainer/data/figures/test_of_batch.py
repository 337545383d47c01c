"""Figures of a batch by the task sets that its tasks are of."""

from dataclasses import replace

from seamlessflow.trainer.data.batch import Batch, Prepared
from seamlessflow.trainer.data.figures.of_batch import facts
from seamlessflow.trainer.metrics.names import known
from tests.builders.trainer.groups import NOW, group


def of_set(name: str, split: str, *rewards: float) -> Prepared:
    """Return a group whose task is of a set."""
    made = group(name, *rewards)
    sessions = tuple(replace(one, source=replace(one.source, split=split)) for one in made.sessions)
    return Prepared(
        replace(made, sessions=sessions), tuple(chain for one in sessions for chain in one.chains)
    )


def by_source(*groups: Prepared) -> dict[str, float]:
    found = facts(Batch(0, groups), NOW)
    return {name: value for name, value in found.items() if "_from/" in name}


def test_rewards_and_groups_are_counted_by_the_set_of_the_task() -> None:
    found = by_source(
        of_set("a", "math", 1.0, 0.0), of_set("b", "code", 0.25), of_set("c", "math", 1.0, 1.0)
    )
    assert found == {
        "groups_from/math": 2,
        "reward_from/math": 0.75,
        "groups_from/code": 1,
        "reward_from/code": 0.25,
    }
    assert all(known(name) for name in found)


def test_sessions_that_were_opened_without_a_set_have_none() -> None:
    assert by_source(of_set("a", "", 1.0)) == {}
