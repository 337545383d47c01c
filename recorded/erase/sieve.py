"""An erasure's sieve: for each record on a topic, the copy's record. Pure."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from seamlessflow.infra.blobs import reference
from seamlessflow.infra.errors import BlobUnavailable, NewerRelease
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.unreadable import Raw
from seamlessflow.recorded.erase.erased_sessions import ErasedSessions
from seamlessflow.schemas.codec import UndecodableRecord, UnknownSchema, decode, encode
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import TOPICS, dead_letters_of

_LETTERS = frozenset(map(dead_letters_of, TOPICS))


@dataclass(slots=True)
class TopicErasure:
    """One call's counts of a topic's records."""

    copied: int = 0
    erased: int = 0
    emptied: int = 0
    """Failures of erased sessions on `control`, copied without their text."""
    naming: int = 0
    """Copied records that keep an erased session's id, for example a group's result."""
    undecodable: int = 0
    """Copied records that cannot be read, so it is not known whose they are."""
    dropped: int = 0
    """Records that cannot be read and were left out."""
    blobs: set[str] = field(default_factory=set)
    """Places outside the log that erased records refer to."""
    stored: set[str] = field(default_factory=set)
    """Blobs with erased records that were too large for their topic."""
    forks: set[str] = field(default_factory=set)
    """Kept sessions that hold a copy of an erased one."""
    imported: set[str] = field(default_factory=set)
    """Ids of erased trajectories that were imported from a session's export."""
    by_record: Counter[str] = field(default_factory=Counter)
    """Erased records by type; `undecodable` are those with a session in their bytes."""


@dataclass(frozen=True, slots=True)
class Sieve:
    """An erasure's rules."""

    sessions: ErasedSessions
    drop_undecodable: bool = False
    whole: Callable[[bytes], Record] = decode
    """Decodes a record; for a reference, the record in its blob."""

    def kept(self, topic: str, item: Received, counts: TopicErasure) -> Raw | None:
        """Return the copy's record, or None for an erased one; count it.

        `topic` has no prefix. Raises `NewerRelease` unless undecodable records are left out, and
        `BlobUnavailable` if a storage does not answer.
        """
        raw = item.record
        if not isinstance(raw, Raw):  # the name of a header is not UTF-8: no client can copy it
            return self._undecodable(Raw(b""), counts, copy=False)
        try:
            record = self.whole(raw.value)
        except UnknownSchema as error:
            if topic not in _LETTERS and not self.drop_undecodable:
                what = f"the unknown schema fingerprint {error.fingerprint}"
                raise NewerRelease(topic, item.partition, item.offset, what) from error
            return self._undecodable(raw, counts)
        except UndecodableRecord:
            return self._undecodable(raw, counts)
        except BlobUnavailable as error:
            if not error.lasting:
                raise
            return self._undecodable(raw, counts)
        kept = self._decoded(record, raw, counts)
        if kept is None and (blob := reference(raw.value)) is not None:
            counts.stored.add(blob.sha256)
        return kept

    def _decoded(self, record: Record, raw: Raw, counts: TopicErasure) -> Raw | None:
        if self.sessions.concern(record):
            counts.erased += 1
            counts.by_record[type(record).__name__] += 1
            counts.blobs |= blobs_of(record)
            if self.sessions.imported(record):
                counts.imported.add(str(record.session_id))  # type: ignore[attr-defined]
            return None
        counts.copied += 1
        emptied = self.sessions.without_text(record)
        if emptied is not None:
            counts.emptied += 1
            raw = Raw(encode(emptied), raw.key)
        counts.naming += self.sessions.in_bytes(raw.key or b"", raw.value)
        forked = self.sessions.forked_by(record)
        counts.forks |= {forked} if forked else set()
        return raw

    def _undecodable(self, raw: Raw, counts: TopicErasure, copy: bool = True) -> Raw | None:
        if self.sessions.in_bytes(raw.key or b"", raw.value):
            counts.erased += 1
            counts.by_record["undecodable"] += 1
            return None
        mark = copy and not raw.value  # of a dead letter that was retried
        if not mark and (self.drop_undecodable or not copy):
            counts.dropped += 1
            return None
        counts.undecodable += not mark
        counts.copied += 1
        return raw


def blobs_of(record: Record) -> set[str]:
    """Return the places of media and arrays that a record only refers to."""
    parts = (*getattr(record, "media", ()), *getattr(record, "tensors", ()))
    return {part.uri for part in parts if part.uri}
