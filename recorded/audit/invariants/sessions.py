"""Check that every finalized session is on `trajectories`, with one content. Pure.

One transaction commits a trajectory and the manager's progress. A partition's sessions are
committed in the order in which they were finalized. A session without a trajectory is therefore
open at first. It becomes a violation once the progress stands behind it, or once its partition has
a trajectory that was finalized later. A transaction with an unknown outcome may leave copies, which
must be equal to the byte.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import xxhash

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.audit.invariants.evidence import Kept, Owners, ends_with_run
from seamlessflow.recorded.audit.invariants.ledger import Findings, LogPlace, Seen, place_of
from seamlessflow.schemas import records as r
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.topics import SESSIONS, TRAJECTORIES

LATE_MS = 300_000
"""Most working time of its owner by which a session may be finalized late."""


@dataclass(slots=True)
class _AuditedSession:
    opened: LogPlace | None
    """None if retention removed the beginning."""
    goes_on: bool = False
    """True if it may stay open after the run's end."""
    closed: LogPlace | None = None
    due_ms: int = 0
    """Working time of the partition's owner at which the wait for rewards ends."""
    finalized: LogPlace | None = None
    finalized_ms: int = 0
    late: bool = False


@dataclass(frozen=True, slots=True)
class _FirstCopy:
    place: LogPlace
    digest: bytes
    at: tuple[int, int, int]
    """Partition on `sessions`, first and last offset."""


class SessionsCheck:
    """Fold over `sessions` and `trajectories`."""

    def __init__(self, kept: Kept, owners: Owners) -> None:
        self.findings = Findings("sessions")
        self._kept = kept
        self._owners = owners
        self._sessions: dict[str, _AuditedSession] = {}
        self._copies: dict[str, _FirstCopy] = {}
        self._over = Seen()
        self._contents = Seen()
        self._progress: dict[int, int] = {}
        """By partition, the offset on `sessions` before which all trajectories are committed."""
        self._covered: dict[int, int] = {}
        """The same, as it was at the last `settle`."""

    @property
    def open(self) -> int:
        """Count of sessions that are not on `trajectories` yet."""
        return len(self._sessions)

    def apply(self, received: Received) -> None:
        """Fold in a record; only events that count are passed in."""
        record = received.record
        match record:
            case r.Trajectory():
                self._trajectory(received, record)
            case r.SessionOpened():
                self._open(received, record)
            case r.SessionClosed():
                session = self._session(received, record.session_id)
                if session is not None and session.closed is None:
                    session.closed = place_of(received)
                    wait_ms = max(0, record.await_reward_until_ms - record.at_ms)
                    session.due_ms = self._owners.worked_ms(received.partition) + wait_ms
            case r.SessionFinalized():
                session = self._session(received, record.session_id)
                if session is not None and session.closed and session.finalized is None:
                    session.finalized = place_of(received)
                    session.finalized_ms = received.timestamp_ms
                    self._judge_wait(session, record.session_id)

    def settle(self, covered: Mapping[int, int]) -> None:
        """Judge what is finalized. `sessions` was read to behind every trajectory.

        `covered`: the managers' progress by partition, from before `trajectories` was read. The
        marks that end a transaction reach its partitions one after the other. So the progress
        counts only at the next call.
        """
        for session_id, session in list(self._sessions.items()):
            self._judge(session_id, session)
        for session_id, copy in list(self._copies.items()):
            self._judge_stray(session_id, copy)
        for partition, offset in covered.items():
            self._progress[partition] = max(self._progress.get(partition, 0), offset)
        self._covered = dict(self._progress)

    def end(self) -> None:
        """Judge the sessions that are still open: the run is finished, so none gets a trajectory.

        Sessions that go on after the run and are not finalized are left out.
        """
        for session_id, session in list(self._sessions.items()):
            if session.goes_on and session.finalized is None:
                continue
            if session.opened is None:
                self.findings.not_checkable += 1
            elif session.finalized is None:
                detail = f"session {session_id}, opened here, is not finalized"
                self.findings.add(session.opened, f"{detail}, and the run is finished")
            else:
                detail = f"session {session_id} is finalized here and not on {TRAJECTORIES.name}"
                self.findings.add(session.finalized, f"{detail}, and the run is finished")
            del self._sessions[session_id]
            self._finish(session_id)

    def _open(self, received: Received, opened: r.SessionOpened) -> None:
        session_id = opened.session_id
        before = self._sessions.get(session_id)
        if before is None and session_id not in self._over:
            goes_on = not ends_with_run(opened)
            self._sessions[session_id] = _AuditedSession(place_of(received), goes_on)
            return
        over = before is None or before.finalized is not None
        state = "was finalized" if over else "is open"
        detail = f"session {session_id} is opened again, although it {state}"
        self.findings.add(place_of(received), detail)

    def _session(self, received: Received, session_id: str) -> _AuditedSession | None:
        """Return the session, or None if it is over or was never opened."""
        session = self._sessions.get(session_id)
        whole = self._kept.whole((SESSIONS.name, received.partition))
        if session is not None or whole or session_id in self._over:
            return session
        # All that is known of it is its end; `_judge` leaves it out.
        return self._sessions.setdefault(
            session_id, _AuditedSession(None, closed=place_of(received))
        )

    def _trajectory(self, received: Received, record: r.Trajectory) -> None:
        session_id = record.session_id
        digest = xxhash.xxh3_128_digest(encode(record))
        if session_id in self._over:
            same = (session_id, digest) in self._contents
        else:
            at = record.partition, record.first_offset, record.last_offset
            first = self._copies.setdefault(session_id, _FirstCopy(place_of(received), digest, at))
            same = first.digest == digest
        if not same:
            detail = f"this trajectory of session {session_id} differs from an earlier copy"
            self.findings.add(place_of(received), detail)
        progress = self._progress.get(record.partition, 0)
        self._progress[record.partition] = max(progress, record.last_offset + 1)

    def _judge(self, session_id: str, session: _AuditedSession) -> None:
        if session.finalized is None:
            self._judge_wait(session, session_id)
            return
        copy = self._copies.get(session_id)
        if session.opened is None:
            self.findings.not_checkable += 1
        elif copy is not None:
            self.findings.checked += 1
            self._judge_bounds(session_id, session, copy)
        elif self._covered.get(session.finalized.partition, 0) <= session.finalized.offset:
            return
        elif self._kept.holds(TRAJECTORIES.name, session.finalized_ms):
            detail = f"session {session_id} is finalized here and not on {TRAJECTORIES.name}"
            self.findings.add(session.finalized, detail)
        else:
            self.findings.not_checkable += 1
        del self._sessions[session_id]
        self._finish(session_id)

    def _judge_bounds(self, session_id: str, session: _AuditedSession, copy: _FirstCopy) -> None:
        opened = session.opened
        finalized = session.finalized
        if opened is None or finalized is None:
            return
        actual = opened.partition, opened.offset, finalized.offset
        if copy.at != actual:
            claimed = f"{SESSIONS.name}[{copy.at[0]}], offsets {copy.at[1]} to {copy.at[2]}"
            detail = f"the trajectory of session {session_id} names {claimed}"
            self.findings.add(
                copy.place, f"{detail}, not {actual[1]} to {actual[2]} of {actual[0]}"
            )

    def _judge_stray(self, session_id: str, copy: _FirstCopy) -> None:
        """Judge a trajectory whose session is not finalized on the log."""
        if self._kept.whole((SESSIONS.name, copy.at[0])) or session_id in self._sessions:
            detail = f"session {session_id} has a trajectory, but no SessionFinalized that counts"
            self.findings.add(copy.place, detail)
        else:
            self.findings.not_checkable += 1
        self._finish(session_id)

    def _judge_wait(self, session: _AuditedSession, session_id: str) -> None:
        if session.closed is None or session.opened is None or session.late:
            return
        late_ms = self._owners.worked_ms(session.closed.partition) - session.due_ms
        if late_ms > LATE_MS:
            session.late = True
            detail = f"session {session_id}, closed here, is not finalized {late_ms / 1000:.0f} s"
            self.findings.add(session.closed, f"{detail} after its wait for rewards")

    def _finish(self, session_id: str) -> None:
        """Keep hashes of a judged session, so that later copies can be compared."""
        self._over.add(session_id)
        copy = self._copies.pop(session_id, None)
        if copy is not None:
            self._contents.add((session_id, copy.digest))
