"""Erased sessions, and the records about them. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from seamlessflow.infra.worker.judged_rewards import JUDGED, JUDGING
from seamlessflow.schemas.identity import session_id as session_of
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.records import (
    ForkedPrefix,
    GroupDropped,
    GroupExpired,
    OpenSession,
    Record,
    SampleFailed,
    SessionOpened,
    Task,
    Trajectory,
)
from seamlessflow.schemas.tokens import FOREIGN
from seamlessflow.schemas.topics import REPLIES, REQUESTS

_BY_NAME = (*REQUESTS.records, *REPLIES.records)
"""Records that may have a session's name instead of its id."""
_IMPORTED = f"{FOREIGN}_session_id"
"""An imported trajectory's metadata: the session that its file was exported from."""
_OPENING = (OpenSession, SessionOpened, Trajectory)
"""Records that have a session's purpose and metadata."""
_OF_GROUP = re.compile(r"(.+)\.\d+\.\d+")


@dataclass(frozen=True)
class ErasedSessions:
    """Ids, or names: a name stands for all its sessions."""

    asked: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def from_names(cls, asked: Iterable[str]) -> Self:
        """Return the sessions with these ids or names."""
        return cls(frozenset(asked))

    def include(self, session_id: str) -> bool:
        """Return True if the session is erased."""
        return session_id in self.asked or session_name(session_id) in self.asked

    def concern(self, record: Record) -> bool:
        """Return True if the record is about an erased session.

        A command or reply that only has a name is about all sessions with that name.
        """
        if isinstance(record, Task):
            return self.include(session_of(record.group_id, record.sample, record.attempt))
        if self.imported(record):
            return True
        named = getattr(record, "session_id", None)
        if not isinstance(named, str):
            return False
        return self.include(named) or (isinstance(record, _BY_NAME) and named in self._names)

    def imported(self, record: Record) -> bool:
        """Return True for a trajectory that was imported from an erased session's export."""
        origin = record.metadata.get(_IMPORTED) if isinstance(record, Trajectory) else None
        return origin is not None and self.include(origin)

    def forked_by(self, record: Record) -> str:
        """Return the session that this record shows to hold a copy of an erased one, or nothing.

        It is a fork, or the session of a judge that was asked about the erased one.
        """
        if isinstance(record, _OPENING) and record.purpose == JUDGING:
            return record.session_id if self.include(record.metadata.get(JUDGED, "")) else ""
        if isinstance(record, Trajectory):
            origin = record.fork
        else:
            fork: ForkedPrefix | None = getattr(record, "fork", None)
            origin = None if fork is None else fork.origin
        if origin is None or not self.include(origin.session_id):
            return ""
        if isinstance(record, Task):
            return session_of(record.group_id, record.sample, record.attempt)
        return str(record.session_id)  # type: ignore[attr-defined]

    def without_text(self, record: Record) -> Record | None:
        """Return a `control` record without a failure's text; None if it has no such text."""
        match record:
            case SampleFailed(group_id=group, sample=sample, attempt=attempt, detail=text):
                theirs = self.include(session_of(group, sample, attempt))
                return replace(record, detail="") if text and theirs else None
            case (
                GroupDropped(group_id=group, detail=text)
                | GroupExpired(group_id=group, detail=text)
            ):
                return replace(record, detail="") if text and group in self._groups else None
        return None

    def in_bytes(self, key: bytes, value: bytes) -> bool:
        """Return True if an undecodable record has an erased session in its bytes."""
        return key in self._keys or any(name in value for name in self._keys)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(map(session_name, self.asked))

    @cached_property
    def _groups(self) -> frozenset[str]:
        matches = map(_OF_GROUP.fullmatch, self.asked)
        return frozenset(match[1] for match in matches if match)

    @cached_property
    def _keys(self) -> frozenset[bytes]:
        return frozenset(name.encode() for name in self.asked | self._names)
