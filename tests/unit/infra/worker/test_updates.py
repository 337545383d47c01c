"""Records of `control` in; who may load new weights out."""

from collections import deque
from random import Random

import pytest

from seamlessflow.infra.worker.updates import UpdateLine, UpdateRule, UpdateSection, concerns_line
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control

WORKERS = ("a", "b", "c", "d")


def acquired(worker: str, version: int = 0, policy: str = "policy") -> r.RoleAcquired:
    return control.acquired(worker, "rollout", 1, version=version, policy=policy)


def loaded(version: int, worker: str) -> r.WeightsLoaded:
    return control.loaded(version, worker=worker)


def line(*records: Record) -> UpdateLine:
    updates = UpdateLine("policy")
    for record in [*map(acquired, WORKERS), *records]:
        updates.apply(record)
    return updates


def ranks(updates: UpdateLine) -> list[int]:
    return [updates.ahead(worker) for worker in WORKERS]


def may(rule: UpdateRule, worker: str = "b", behind: int = 1, **changes: object) -> bool:
    state = {"version": rule.line.newest, "idle": False, "needed": False, "now_ms": 0, **changes}
    return rule.may_load(worker, behind=behind, **state)  # type: ignore[arg-type]


def test_workers_load_in_the_order_in_which_they_took_their_role() -> None:
    assert ranks(line()) == [0, 0, 0, 0]
    assert ranks(line(control.published(1))) == [0, 1, 2, 3]
    assert ranks(line(control.published(1), loaded(1, "a")))[1:] == [0, 1, 2]
    assert ranks(line(acquired("a"), control.published(1))) == [3, 0, 1, 2]


def test_the_oldest_version_comes_first() -> None:
    behind = line(control.published(1), loaded(1, "a"), loaded(1, "b"), control.published(2))

    assert ranks(behind) == [2, 3, 0, 1]


@pytest.mark.parametrize(
    "gone",
    [
        control.released("a", "rollout", 1),
        control.lost("a", "rollout", incarnation=acquired("a").incarnation),
        control.assigned("a", "train", 2),
        acquired("a", 1),
        acquired("a", 0, policy="other"),
    ],
)
def test_a_worker_that_left_is_not_waited_for(gone: Record) -> None:
    assert ranks(line(control.published(1), gone))[1:] == [0, 1, 2]


def test_records_of_others_change_nothing() -> None:
    other = control.published(7, policy="other")
    late = control.lost("a", "rollout", incarnation="an earlier one")

    assert ranks(line(control.published(1), other, late, control.usage("a"))) == [0, 1, 2, 3]


def test_a_process_that_starts_waits_for_workers_that_it_only_hears_of() -> None:
    mine = UpdateLine("policy")
    for record in (
        control.usage("a"),
        control.usage("b"),
        acquired("me"),
        control.published(1),
        loaded(1, "a"),
    ):
        mine.apply(record)
    assert mine.ahead("me") == 1  # b, which may be one of another policy

    for record in (loaded(1, "me"), control.published(2), control.usage("b")):
        mine.apply(record)
    assert mine.ahead("me") == 1  # a: b did not load the weights before these


def test_whoever_reads_late_no_more_than_k_load_at_once() -> None:
    """Each worker folds the log at its own pace; all orders of reading are drawn."""
    for seed in range(200):
        draw, at_most = Random(seed), 1 + seed % 2
        log: list[Record] = [*map(acquired, WORKERS), control.published(1)]
        lines = {worker: UpdateLine("policy") for worker in WORKERS}
        unread = {worker: deque(log) for worker in WORKERS}
        loads: list[str] = []
        done: set[str] = set()
        published = 1
        while len(done) < len(WORKERS):
            worker = draw.choice(WORKERS)
            if unread[worker]:
                lines[worker].apply(unread[worker].popleft())
            elif worker in loads:
                loads.remove(worker)
                done.add(worker)
                for queue in unread.values():
                    queue.append(loaded(published, worker))
            elif worker not in done and lines[worker].ahead(worker) < at_most:
                loads.append(worker)
                assert len(loads) <= at_most


def test_a_rule_says_when() -> None:
    behind = line(control.published(1))
    together, rolling, idle = (
        UpdateRule(UpdateSection(mode=mode), 1, behind) for mode in ("together", "rolling", "idle")
    )
    assert may(together)
    assert (may(rolling, "a"), may(rolling, "b")) == (True, False)
    assert (may(idle), may(idle, idle=True), may(idle, needed=True)) == (False, True, True)


def test_a_worker_that_hears_of_weights_from_fleet_waits_for_the_line_of_control() -> None:
    unread = line()
    rule = UpdateRule(UpdateSection(mode="rolling", wait_s=10), 1, unread)
    assert not may(rule, "a", version=1)
    unread.apply(control.published(1))
    assert may(rule, "a", version=1)
    assert not may(rule, "b", version=1)

    # One that began between the two records never reads the one of `control`.
    late = UpdateRule(rule.settings, 1, line())
    assert not may(late, "b", version=1, now_ms=0)
    assert not may(late, "b", version=1, now_ms=9_999)
    assert may(late, "b", version=1, now_ms=10_000)


def test_no_worker_stays_further_behind_than_the_lag() -> None:
    behind = line(control.published(1), control.published(2))
    for mode in ("rolling", "idle"):
        rule = UpdateRule(UpdateSection(mode=mode), 1, behind)
        assert (may(rule, "d", behind=1), may(rule, "d", behind=2)) == (False, True)
        assert may(UpdateRule(rule.settings, 0, behind), "d", behind=1)


def test_a_worker_that_died_in_its_update_does_not_hold_up_the_others() -> None:
    behind = line(control.published(1))
    rule = UpdateRule(UpdateSection(mode="rolling", wait_s=10), 1, behind)
    assert not may(rule, now_ms=5_000)
    assert not may(rule, now_ms=14_999)
    assert may(rule, now_ms=15_000)
    assert not may(rule, "c", now_ms=15_000)
    assert may(rule, "c", now_ms=25_000)

    behind.apply(loaded(1, "b"))
    assert not may(rule, "d", now_ms=30_000)


def test_only_records_of_the_line_concern_it() -> None:
    assert concerns_line(acquired("a"))
    assert concerns_line(control.usage("a"))
    assert not concerns_line(control.acquired("a", "train", 1))
    assert not concerns_line(control.ready("g"))
