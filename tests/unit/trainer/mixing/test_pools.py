"""Pools: what may be trained of them, how often, and what a checkpoint keeps."""

import random

import orjson
import pytest

from seamlessflow.trainer.mixing.pools import (
    Pool,
    PoolRules,
    StoredGroup,
    StoredSession,
    pools_json,
    restore,
)
from tests.seed import seed


def group(name: str, *sessions: str, task: str = "t", step: int | None = None) -> StoredGroup:
    made = tuple(StoredSession(each, 0, place, 1.0) for place, each in enumerate(sessions))
    return StoredGroup("old", name, task, step, made)


def names(pool: Pool, step: int = 0) -> dict[str, list[str]]:
    return {
        each.group_id: [session.session_id for session in each.sessions]
        for each in pool.at(step).groups()
    }


def test_sessions_of_a_group_that_arrive_one_by_one_are_one_group() -> None:
    pool = Pool("old")
    for each in (group("g", "a"), group("h", "c"), group("g", "b"), group("g", "a")):
        pool.put(each)
    assert names(pool) == {"h": ["c"], "g": ["b", "a"]}


def test_a_session_that_was_trained_often_enough_may_not_be_trained_again() -> None:
    pool = Pool("old", PoolRules(uses=2))
    pool.put(group("g", "a", "b"))
    for left in (["a", "b"], ["a", "b"], ["b"]):
        assert names(pool) == {"g": left}
        pool.count("a")
    for _ in range(2):
        pool.count("b")
    assert names(pool) == {}
    assert pool.at(0).of_task("t") == []
    assert pool.at(0).session("a") is None


def test_uses_are_those_of_each_session() -> None:
    pool = Pool("old")
    pool.put(group("g", "a", "b"))
    pool.count("b")
    assert [session.uses for session in pool.at(0).groups()[0].sessions] == [0, 1]


def test_groups_that_are_too_old_are_forgotten() -> None:
    pool = Pool("own", PoolRules(max_staleness=3))
    for step in range(4):
        pool.put(group(f"g{step}", f"s{step}", step=step))
    assert list(names(pool, 5)) == ["g2", "g3"]
    pool.grow_old(5)
    assert list(pool.groups) == ["g2", "g3"]
    assert pool.group_of("s1") is None


def test_no_more_groups_are_remembered_than_are_to_be_kept() -> None:
    pool = Pool("old", PoolRules(keep=2))
    for number in range(5):
        pool.put(group(f"g{number}", f"s{number}", task=f"t{number}"))
    assert list(names(pool)) == ["g3", "g4"]
    assert pool.of_task("t0") == []


def test_a_lost_session_leaves_its_group_and_an_empty_group_goes() -> None:
    pool = Pool("old")
    pool.put(group("g", "a", "b"))
    pool.lose("a")
    assert names(pool) == {"g": ["b"]}
    pool.lose("b")
    pool.lose("never there")
    assert names(pool) == {}
    assert pool.of_task("t") == []


def test_a_checkpoint_keeps_own_groups_and_all_uses() -> None:
    pools = {"own": Pool("own"), "old": Pool("old")}
    pools["own"].put(StoredGroup("own", "g", "t", 4, (StoredSession("a", 1, 2, 0.5),)))
    pools["old"].put(group("h", "b"))
    pools["own"].count("a")
    pools["own"].count_group("g")
    pools["old"].count("b")
    values = orjson.loads(orjson.dumps(pools_json(pools)))
    again = {"own": Pool("own"), "old": Pool("old"), "new": Pool("new")}
    again["old"].put(group("h", "b"))
    restore(again, values)
    for name, pool in pools.items():
        assert again[name].at(5).groups() == pool.at(5).groups()
        assert again[name].used_groups == pool.used_groups
    restore(again, {})


@pytest.mark.parametrize("drawn", [seed, 1, 2])
def test_the_index_is_that_of_a_plain_list_after_any_history(drawn: int) -> None:
    source = random.Random(drawn)
    pool = Pool("own", PoolRules(uses=2, max_staleness=20, keep=8))
    plain: list[tuple[str, str, int]] = []
    for step in range(60):
        name, task = f"g{step}", f"t{source.randrange(4)}"
        pool.put(group(name, f"{name}.0", f"{name}.1", task=task, step=step))
        plain = [*plain, (name, task, step)][-8:]
        if source.random() < 0.3:
            lost = source.choice(plain)
            for sample in range(2):
                pool.lose(f"{lost[0]}.{sample}")
            plain.remove(lost)
        for task in ("t0", "t1", "t2", "t3"):
            expected = [each[0] for each in plain if each[1] == task and step - each[2] <= 20]
            assert [each.group_id for each in pool.at(step).of_task(task)] == expected, drawn
