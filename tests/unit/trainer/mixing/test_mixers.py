"""Choices of the mixers of the release, from small pools."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from seamlessflow.infra.user_functions import ResultMalformed
from seamlessflow.trainer.mixing.mixers import (
    FreshGroup,
    FreshSession,
    Plan,
    Replacement,
    checked_plan,
    mix,
    rescue,
    small_step,
)
from seamlessflow.trainer.mixing.pools import Pool, PoolRules, PoolView, StoredGroup, StoredSession

SOURCE = random.Random(0)


def fresh(
    task: str, *returns: float, versions: Sequence[int | None] = (), name: str = "g"
) -> FreshGroup:
    sessions = (
        FreshSession(f"{name}.{number}", value, versions[number] if versions else 3)
        for number, value in enumerate(returns)
    )
    return FreshGroup(name, task, tuple(sessions))


def pool(name: str, *groups: tuple[str, int | None, Sequence[float]], uses: int = 4) -> PoolView:
    """Return a pool of groups of a task, the step that trained them first, and returns."""
    made = Pool(name, PoolRules(uses=uses))
    for number, (task, step, returns) in enumerate(groups):
        sessions = tuple(
            StoredSession(f"{name}{number}.{sample}", 0, 10 * number + sample, value)
            for sample, value in enumerate(returns)
        )
        made.put(StoredGroup(name, f"{name}{number}", task, step, sessions))
    return made.at(9)


def rescued(
    groups: Sequence[FreshGroup], *pools: PoolView, **settings: object
) -> list[Replacement]:
    by_name = {view.name: view for view in pools}
    plan = rescue(9, groups, by_name, random.Random(0), **settings)  # type: ignore[arg-type]
    return list(checked_plan(plan, groups, by_name).replace)


def test_a_group_that_failed_whole_gets_a_stored_success_of_its_task() -> None:
    (each,) = rescued([fresh("t", 0, 0)], pool("old", ("t", None, (0, 1, 0))))
    assert (each.group_id, each.session_id, each.pool) == ("g", "g.0", "old")
    assert each.by.session_id == "old0.1"


def test_a_group_of_one_that_failed_is_its_stored_success_alone() -> None:
    (each,) = rescued([fresh("t", -2.0)], pool("old", ("t", None, (7.5,))))
    assert (each.session_id, each.by.session_id) == ("g.0", "old0.0")


@pytest.mark.parametrize("returns", [(1, 0), (1, 1), (0.5, 1.0)])
def test_a_group_with_a_success_stays_as_it_is(returns: Sequence[float]) -> None:
    assert rescued([fresh("t", *returns)], pool("old", ("t", None, (1, 1)))) == []


def test_a_group_without_a_stored_success_of_its_task_stays_as_it_is() -> None:
    assert rescued([fresh("t", 0, 0)], pool("old", ("u", None, (1,)), ("t", None, (0, 0.9)))) == []


def test_the_oldest_failure_leaves_that_of_the_oldest_version_then_the_first_sample() -> None:
    stored = pool("old", ("t", None, (1,)))
    for versions, out in (((3, 1, 1), "g.1"), ((2, 2, 2), "g.0"), ((3, None, 1), "g.1")):
        (each,) = rescued([fresh("t", 0, 0, 0, versions=versions)], stored)
        assert each.session_id == out


def test_the_newest_success_is_that_of_the_runs_newest_step_before_those_of_other_logs() -> None:
    past = pool("own", ("t", 2, (1,)), ("t", 5, (1, 1)), ("t", 3, (1,)))
    other = pool("old", ("t", None, (1,)))
    (each,) = rescued([fresh("t", 0, 0)], other, past)
    assert each.by.session_id == "own1.1"


def test_a_random_success_is_any_of_them_and_the_same_for_the_same_step() -> None:
    stored = pool("old", ("t", None, (1, 1, 1)))
    seen = Counter(
        rescue(9, [fresh("t", 0)], {"old": stored}, random.Random(seed), take="random")
        .replace[0]
        .by.session_id
        for seed in [*range(300), 0]
    )
    assert len(seen) == 3
    assert min(seen.values()) > 60


def test_one_success_rescues_one_group_of_a_step() -> None:
    groups = [fresh("t", 0, 0, name="g"), fresh("t", 0, 0, name="h")]
    assert len(rescued(groups, pool("old", ("t", None, (1,))))) == 1
    assert len(rescued(groups, pool("old", ("t", None, (1, 1))))) == 2


def test_passes_says_what_a_success_is() -> None:
    stored = pool("old", ("t", None, (0.6, 0.4)))
    (each,) = rescued([fresh("t", 0.2, 0.4)], stored, passes=0.5)
    assert each.by.session_id == "old0.0"
    assert rescued([fresh("t", 0.2, 0.7)], stored, passes=0.5) == []


def test_mix_adds_stored_groups_whose_returns_differ_each_equally_often() -> None:
    views = {
        "old": pool("old", ("t", None, (1, 0)), ("t", None, (1, 1)), ("u", None, (0, 0.5))),
        "more": pool("more", ("v", None, (0, 0)), ("v", None, (2, 1)), ("w", None, (1, 0))),
    }
    seen = Counter[str]()
    for seed in range(500):
        plan = mix(9, [fresh("t", 0, 0)], views, random.Random(seed), foreign=2)
        assert len(checked_plan(plan, [fresh("t", 0, 0)], views).add) == 2
        seen.update(group.group_id for group in plan.add)
    assert set(seen) == {"old0", "old2", "more1", "more2"}
    assert min(seen.values()) > 200


def test_mix_adds_as_many_as_there_are() -> None:
    views = {"old": pool("old", ("t", None, (1, 0)))}
    assert len(mix(9, [fresh("t", 0)], views, SOURCE, foreign=4).add) == 1
    assert mix(9, [fresh("t", 0)], {}, SOURCE, foreign=4).add == []


def _plans() -> dict[str, object]:
    _, views = small_step()
    item = views["own"].of_task("a")[0]
    session = item.sessions[0]
    replacing = Replacement("group-a", "group-a.0", "own", session)
    other = Replacement("group-a", "group-a.1", "own", session)
    gone = StoredSession("own/x", 0, 0, 1.0)
    return {
        "a Plan": [item],
        "own/a twice": Plan(add=[item, item]),
        "group-a.0 twice": Plan(replace=[replacing, replacing]),
        "stored session own/a.0 twice": Plan(replace=[replacing, other]),
        "a group that may be trained": Plan(
            add=[StoredGroup("own", "own/z", "a", 1, item.sessions)]
        ),
        "pool other": Plan(add=[StoredGroup("other", "own/a", "a", 1, item.sessions)]),
        "other sessions": Plan(add=[StoredGroup("own", "own/a", "a", 1, (gone,))]),
        "one that may be trained": Plan(replace=[Replacement("group-a", "group-a.0", "own", gone)]),
        "a session of a group": Plan(replace=[Replacement("group-b", "group-a.0", "own", session)]),
    }


@pytest.mark.parametrize("text", _plans())
def test_a_plan_that_cannot_be_trained_is_refused_with_what_is_wrong(text: str) -> None:
    groups, views = small_step()
    with pytest.raises(ResultMalformed, match=text):
        checked_plan(_plans()[text], groups, views)
