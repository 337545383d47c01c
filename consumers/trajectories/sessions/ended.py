"""A partition's finalized sessions, as hashes: their ids and their calls. Pure.

They are kept as long as the log, so they must be small. A sorted array takes eight bytes a hash. A
set holds the latest hashes. It is merged into the array when it reaches a fixed share of the
array's size. Only a call by name needs more, since its answer is the id of the session that it
changed.
"""

from dataclasses import dataclass, field

import numpy as np

from seamlessflow.consumers.trajectories.sessions import calls
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.schemas.arrays import UInt64s
from seamlessflow.schemas.records import AssignReward, CloseSession, EndedSession

_MERGED_FROM = 4_096
_SHARE = 16
"""Ratio of array size to set size at which the set is merged.

The set takes ten times the array's memory for each hash, and merging sorts everything.
"""
_ENCODED = np.dtype("<u8")
HASH_BYTES = _ENCODED.itemsize


@dataclass(slots=True)
class EndedRead:
    """The sessions that a partition's former owners ended, read one after the other."""

    calls: bytearray = field(default_factory=bytearray)
    """`EndedSession.calls` of all sessions together."""
    named: dict[int, str] = field(default_factory=dict)
    """Session id by each hash in `EndedSession.named_calls`."""

    def apply(self, ended: EndedSession) -> None:
        """Add the next ended session."""
        self.calls += ended.calls
        self.named.update(_named(ended))


class EndedSessions:
    """A set of hashes, as `calls.hashes` and `calls.named_hashes` return them for a session."""

    def __init__(self) -> None:
        self.complete = False
        """True once the sessions that former owners ended are known."""
        self._sorted: UInt64s = np.empty(0, np.uint64)
        self._latest: set[int] = set()
        self._named: dict[int, str] = {}

    def load(self, earlier: EndedRead) -> None:
        """Add the sessions that former owners ended."""
        self._merge(_decoded(earlier.calls))
        self._named.update(earlier.named)
        self.complete = True

    def add(self, ended: EndedSession) -> None:
        """Add a session."""
        self._latest.update(_decoded(ended.calls).tolist())
        if len(self._latest) > max(_MERGED_FROM, len(self._sorted) // _SHARE):
            self._merge(np.fromiter(self._latest, np.uint64, len(self._latest)))
            self._latest.clear()
        self._named.update(_named(ended))

    def changed_by(self, call: AssignReward | CloseSession) -> str | None:
        """Return the id of the session that an equal call changed, or None."""
        call_hash = calls.addressed_hash(call.session_id, calls.call_hash(call))
        return call.session_id if call_hash in self else self._named.get(call_hash)

    def _merge(self, more: UInt64s) -> None:
        merged = np.concatenate((self._sorted, np.sort(more)))
        merged.sort(kind="stable")  # which finds the two sorted runs and takes linear time
        self._sorted = merged

    def __contains__(self, value: object) -> bool:
        if value in self._latest or not isinstance(value, int):
            return value in self._latest
        wanted = np.uint64(value)
        place = int(self._sorted.searchsorted(wanted))
        return place < len(self._sorted) and self._sorted[place] == wanted


def kept_of(session: Session) -> EndedSession:
    """Return what the manager keeps about a finalized session."""
    return EndedSession(
        session_id=session.session_id,
        calls=_encoded(calls.hashes(session)),
        named_calls=_encoded(calls.named_hashes(session)),
    )


def _encoded(hashes: set[int]) -> bytes:
    return np.sort(np.fromiter(hashes, _ENCODED, len(hashes))).tobytes()


def _decoded(hashes: bytes | bytearray) -> UInt64s:
    return np.frombuffer(hashes, _ENCODED)


def _named(ended: EndedSession) -> dict[int, str]:
    return dict.fromkeys(_decoded(ended.named_calls).tolist(), ended.session_id)
