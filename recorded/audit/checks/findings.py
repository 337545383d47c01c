"""Findings of a check: how much it checked, and what it found wrong. Pure."""

from dataclasses import dataclass, field
from typing import NamedTuple

from seamlessflow.infra.kafka.client import Received

MOST_KEPT = 1_000
"""Most violations of a check that are kept as text; all are counted."""


class LogPlace(NamedTuple):
    """LogPlace of a record on the log."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that the log breaks, with the record that shows it."""

    check: str
    place: LogPlace
    detail: str

    def __str__(self) -> str:
        return f"{self.check}: {self.place}: {self.detail}"


@dataclass(slots=True)
class Findings:
    """Result of one check so far."""

    check: str
    checked: int = 0
    not_checkable: int = 0
    """Subjects that began, or whose proof stood, in what retention removed."""
    count: int = 0
    """Number of violations; only the first ones are in `violations`."""
    violations: list[Violation] = field(default_factory=list)

    def add(self, place: LogPlace, detail: str) -> None:
        """Add a violation that the record at `place` shows."""
        self.count += 1
        if len(self.violations) < MOST_KEPT:
            self.violations.append(Violation(self.check, place, detail))


def place_of(received: Received) -> LogPlace:
    """Return the place of a record that was read."""
    return LogPlace(received.topic, received.partition, received.offset)
