"""Surroundings of a log: Kafka's consumer groups with their lag, and an audit beside the console.

Only pages about the present show them. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from seamlessflow.infra.kafka.client import LogPartition
from seamlessflow.infra.kafka.topics.groups import FoundGroup
from seamlessflow.infra.kafka.topics.lag import GroupState, behind, group_state

MOST_VIOLATIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ViolationLine:
    """A promise of the log that is broken."""

    check: str
    moment: str
    """Place of the record that shows it."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditState:
    """Result of an audit's last round."""

    clean: bool
    complete: bool
    violations: int
    checked: int
    open: int
    not_checkable: int
    records: int
    lines: Sequence[ViolationLine] = ()
    """The first violations."""
    at_ms: int = 0
    """When the round was reported."""
    over: bool = False
    """True if no further round comes."""

    @classmethod
    def of_report(cls, report: Mapping[str, Any], at_ms: int) -> Self:
        """Return the state that a JSON report describes. Raises `KeyError`."""
        checks: Sequence[Mapping[str, int]] = list(report["checks"].values())

        def total(name: str) -> int:
            return sum(check[name] for check in checks)

        return cls(
            clean=report["clean"],
            complete=report["complete"],
            records=report["records"],
            lines=[
                ViolationLine(
                    check=line["check"],
                    moment=f"{line['topic']}:{line['partition']}:{line['offset']}",
                    detail=line["detail"],
                )
                for line in report["violations"][:MOST_VIOLATIONS]
            ],
            at_ms=at_ms,
            violations=total("violations"),
            checked=total("checked"),
            open=total("open"),
            not_checkable=total("not_checkable"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """All that a console knows beside the log."""

    groups: Sequence[GroupState] = ()
    audit: AuditState | None = None
    """None without an audit, or before its first round."""


NOTHING_KNOWN = Surroundings()


def group_reading(
    group: str,
    topic: str,
    members: FoundGroup,
    committed: Mapping[LogPartition, int],
    bounds: Mapping[int, tuple[int, int]],
) -> GroupState:
    """Return how far a group has read a topic.

    `bounds`: each partition's first offset, and the offset behind its last record. Transaction
    marks have offsets too, so a group may have committed a larger offset than that.
    """
    read = {(topic, number): committed.get((topic, number), -1) for number in bounds}
    kept = {
        (topic, number): range(first, max(end, read[topic, number]))
        for number, (first, end) in bounds.items()
    }
    return group_state(group, topic, members, behind(kept, read))
