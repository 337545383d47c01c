"""Surroundings of a log: lags of consumer groups, and the result of an audit."""

import json

from seamlessflow.console.models.surroundings import (
    AuditState,
    ViolationLine,
    group_reading,
)
from seamlessflow.infra.kafka.topics.groups import FoundGroup, GroupMember
from seamlessflow.infra.kafka.topics.lag import GroupState, PartitionLag
from seamlessflow.recorded.audit.auditor import AuditReport, CheckResult
from seamlessflow.recorded.audit.invariants.ledger import LogPlace, Violation

MEMBER = GroupMember("id", "manager-a", "10.0.0.1", frozenset({("requests", 0), ("requests", 1)}))


def reading(
    committed: dict[int, int], bounds: dict[int, tuple[int, int]], topic: str = "requests"
) -> GroupState:
    places = {(topic, number): offset for number, offset in committed.items()}
    return group_reading("managers", topic, FoundGroup("stable", [MEMBER]), places, bounds)


def test_a_lag_is_what_a_group_has_not_committed_of_each_partition() -> None:
    shown = reading({0: 7, 1: 12}, {0: (0, 10), 1: (5, 12), 2: (4, 6)})
    assert shown.partitions == [
        PartitionLag(number=0, lag=3, owner="manager-a", host="10.0.0.1"),
        PartitionLag(number=1, lag=0, owner="manager-a", host="10.0.0.1"),
        PartitionLag(number=2, lag=2),
    ]
    assert (shown.lag, shown.members) == (5, 1)


def test_marks_of_transactions_and_deleted_records_make_no_lag() -> None:
    behind_a_mark = reading({0: 11}, {0: (0, 10)})
    deleted = reading({0: 2}, {0: (8, 10)})
    assert (behind_a_mark.lag, deleted.lag) == (0, 2)


def test_a_report_of_an_audit_becomes_its_state() -> None:
    results = (CheckResult("turns", 10, 2, 1, 0), CheckResult("groups", 5, 0, 0, 1))
    violation = Violation("groups", LogPlace("control", 0, 7), "a group in two steps")
    report = AuditReport(results, (violation,), records=100)
    state = AuditState.of_report(json.loads(json.dumps(report.to_json())), at_ms=9)
    assert (state.clean, state.violations, state.checked, state.open) == (False, 1, 15, 2)
    assert (state.not_checkable, state.records, state.at_ms) == (1, 100, 9)
    assert state.lines == [
        ViolationLine(check="groups", moment="control:0:7", detail="a group in two steps")
    ]
