"""A check's ledger: how much it checked, what it found wrong, and what it is done with. Pure."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import xxhash

from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.arrays import UInt64s

MOST_KEPT = 1_000
"""Most violations that a check keeps as text; all are counted."""
_MERGED_FROM = 4_096
_SHARE = 16
"""The set takes ten times the array's memory for each hash, and merging sorts all hashes."""


class LogPlace(NamedTuple):
    """A record's place on the log."""

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
    """One check's result so far."""

    check: str
    checked: int = 0
    not_checkable: int = 0
    """Subjects whose beginning or proof retention removed."""
    count: int = 0
    """Count of violations; only the first ones are in `violations`."""
    violations: list[Violation] = field(default_factory=list)

    def add(self, place: LogPlace, detail: str) -> None:
        """Add a violation that the record at `place` shows."""
        self.count += 1
        if len(self.violations) < MOST_KEPT:
            self.violations.append(Violation(self.check, place, detail))


def place_of(received: Received) -> LogPlace:
    """Return a received record's place."""
    return LogPlace(received.topic, received.partition, received.offset)


def hash_of(name: object) -> int:
    """Return the hash that stands for a name, which is a string or a tuple with plain values."""
    return xxhash.xxh3_64_intdigest(repr(name).encode())


class Seen:
    """A growing set of names, kept as eight-byte hashes.

    An audit keeps nothing else about a command, turn, session or group that is over.
    """

    def __init__(self) -> None:
        self._sorted: UInt64s = np.empty(0, np.uint64)
        self._latest: set[int] = set()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._latest)

    def __contains__(self, name: object) -> bool:
        return self.has(hash_of(name))

    def add(self, name: object) -> None:
        """Add a name."""
        hashed = hash_of(name)
        if self.has(hashed):
            return
        self._latest.add(hashed)
        if len(self._latest) > max(_MERGED_FROM, len(self._sorted) // _SHARE):
            self._sorted = self.hashes()
            self._latest.clear()

    def has(self, hashed: int) -> bool:
        """Return True if a name with this hash was added."""
        if hashed in self._latest:
            return True
        place = int(np.searchsorted(self._sorted, np.uint64(hashed)))
        return place < len(self._sorted) and int(self._sorted[place]) == hashed

    def hashes(self) -> UInt64s:
        """Return all hashes, sorted."""
        latest = np.fromiter(self._latest, np.uint64, len(self._latest))
        return np.sort(np.concatenate([self._sorted, latest]))
