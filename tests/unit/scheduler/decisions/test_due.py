"""The next time at which a decision may differ without a new record."""

import pytest

from seamlessflow.scheduler.decisions.decide import Rules, View, decide, next_due_ms
from seamlessflow.scheduler.settings import RunSection, SchedulerSection
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control, fleet
from tests.builders.scheduler.inputs import (
    BOTH,
    fleet_of,
    fold,
    holds,
    joined_both,
    rules_for,
    scheduler_settings,
)

BEGUN: list[Record] = [
    control.claimed(),
    control.published(),
    *joined_both("a"),
    *joined_both("b"),
    *holds("a", "rollout", 0),
]


def kinds(view: View, rules: Rules, now_ms: int) -> set[type[Record]]:
    return {type(record) for _, record in decide(view, rules, now_ms)}


@pytest.mark.parametrize(
    ("records", "kind", "at_ms"),
    [
        (
            [control.assigned("b", "rollout", 5, slot=1, deadline_ms=7_000)],
            r.AssignmentTimedOut,
            7_000,
        ),
        (
            [*holds("b", "rollout", 5), control.admitted("g", deadline_ms=9_000)],
            r.GroupExpired,
            9_000,
        ),
        (
            [*holds("b", "train", 5, gang_epoch=1), control.admitted("g"), control.completed()],
            r.RoleAssigned,
            4_000,
        ),
    ],
)
def test_what_is_decided_at_some_time_is_decided_at_a_due_time(
    records: list[Record], kind: type[Record], at_ms: int
) -> None:
    rules = rules_for(
        scheduler_settings(
            # All credits are taken, so that no group is admitted.
            run=RunSection(groups_per_step=1, lag=0),
            scheduler=SchedulerSection(min_dwell_s=4),
        )
    )
    alive = [fleet.heartbeat(worker, process) for worker in "ab" for process in BOTH]
    view = View(
        state=fold(*BEGUN, *records),
        fleet=fleet_of(*alive),
        issued={"g": dict.fromkeys(range(8), 0)},
    )

    due_ms = 0
    while due_ms < at_ms and kind not in kinds(view, rules, due_ms):
        due_ms = next_due_ms(view, rules, due_ms) or at_ms + 1

    assert due_ms == at_ms
    assert kind in kinds(view, rules, at_ms)
