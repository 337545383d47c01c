"""Replayed trajectories compared with the recorded ones, by digests of their bytes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import xxhash

from seamlessflow.consumers.trajectories.sessions.tokenless import fitting
from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import TRAJECTORIES

Digest = bytes
MOST_NAMED = 5
"""Most sessions that are named for a finding."""
_CLOCKS_MS = 60_000
"""Largest difference between a session's end by the manager's clock and its record's time."""


class RecordPlace(NamedTuple):
    """A record's place on `trajectories`."""

    partition: int
    offset: int


def digest(made: Trajectory) -> Digest:
    """Return 16 bytes that stand for the record's encoding.

    For a record too large for its topic, 16 more bytes stand for the record without tokens: a
    manager without object storage wrote it so.
    """
    cut = fitting(made)
    return _digest(made) + (_digest(cut) if cut is not made else b"")


@dataclass(slots=True)
class Comparison:
    """Recorded trajectories against `replayed`, the replayed ones' digests by session."""

    replayed: Mapping[str, Digest]
    bounds: Mapping[int, tuple[int, int]]
    """By partition of `sessions`, the first offset that was read, and the one behind the last."""
    recent: frozenset[str] = frozenset()
    """Sessions that ended so shortly before that their record may still be on its way."""
    ended_ms: Mapping[str, int] = field(default_factory=dict)
    """When each replayed session ended."""
    kept_since_ms: float = 0
    """Time before which retention may have removed recorded trajectories."""
    equal: int = 0
    copies: int = 0
    """Further records about a session that was compared before."""
    different: dict[str, RecordPlace] = field(default_factory=dict)
    """By session, the first place of a record that its events do not give."""
    not_checkable: int = 0
    """Recorded sessions whose first events retention removed."""
    later: int = 0
    """Recorded sessions that ended behind the last offset read."""
    _seen: set[str] = field(default_factory=set)

    def apply(self, recorded: Trajectory, partition: int, offset: int) -> None:
        """Compare the next recorded trajectory, which the selection chooses."""
        session_id = recorded.session_id
        replayed = self.replayed.get(session_id)
        begin, end = self.bounds.get(recorded.partition, (0, 0))
        if replayed is None and recorded.first_offset < begin:
            self.not_checkable += 1
        elif replayed is None and recorded.last_offset >= end:
            self.later += 1
        elif replayed is None or not _agrees(replayed, recorded):
            self.different.setdefault(session_id, RecordPlace(partition, offset))
        elif session_id in self._seen:
            self.copies += 1
        else:
            self.equal += 1
        self._seen.add(session_id)

    @property
    def missing(self) -> list[str]:
        """Sessions that ended on the log and lack their record, which cannot have been removed."""
        return [name for name in self._unseen() if not self._removed(name)]

    @property
    def removed(self) -> int:
        """Count of sessions whose record retention may have removed."""
        return sum(map(self._removed, self._unseen()))

    def _unseen(self) -> Iterator[str]:
        return (
            name for name in self.replayed if name not in self._seen and name not in self.recent
        )

    def _removed(self, session_id: str) -> bool:
        return self.ended_ms.get(session_id, 0) < self.kept_since_ms


def compared(
    settings: KafkaSettings,
    selection: SessionSelection,
    comparison: Comparison,
    skipped: Skipped,
    stopping: Stopping = never,
) -> None:
    """Apply to `comparison` all recorded trajectories that the selection chooses.

    Raises what `read_topic` raises.
    """
    begun = set[int]()
    for item in read_topic(settings, TRAJECTORIES, skipped, stopping=stopping):
        # If the first offset is not 0, retention removed what was written before.
        if item.partition not in begun and item.offset > 0:
            kept_ms = item.timestamp_ms + _CLOCKS_MS
            comparison.kept_since_ms = max(comparison.kept_since_ms, kept_ms)
        begun.add(item.partition)
        if isinstance(item.record, Trajectory) and selection.chooses(item.record):
            comparison.apply(item.record, item.partition, item.offset)


def _digest(made: Trajectory) -> Digest:
    return xxhash.xxh3_128_digest(encode(made))


def _agrees(replayed: Digest, recorded: Trajectory) -> bool:
    recorded_digest = _digest(recorded)
    return recorded_digest in (replayed[: len(recorded_digest)], replayed[len(recorded_digest) :])
