"""The deadlines of all sessions in owned partitions, and what happens when they pass.

A session has one alarm, at its earliest deadline; all alarms are in one heap. A spilled session's
deadline is kept outside the session, so the session is read back only when it is due. Main thread
only; no method blocks.
"""

import heapq
from collections.abc import Iterator, Mapping

from seamlessflow.consumers.trajectories.acting.failures import Acting
from seamlessflow.consumers.trajectories.bus.request_ends import RequestEnds
from seamlessflow.consumers.trajectories.decisions import deadlines
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.consumers.trajectories.sessions.session import Session

_MOST_AT_ONCE = 200
_LOOK_AGAIN_MS = 50
"""Delay after which a missed deadline is decided again, while events are read back."""


class Alarms:
    """Alarms by partition and session id, one for each session; times in milliseconds."""

    def __init__(self) -> None:
        self._set: dict[tuple[int, str], int] = {}
        self._heap: list[tuple[int, int, str]] = []

    def set(self, partition: int, session_id: str, due_ms: int | None) -> None:
        """Set a session's alarm, unless it has an earlier one or `due_ms` is None."""
        place = partition, session_id
        if due_ms is not None and due_ms < self._set.get(place, due_ms + 1):
            self._set[place] = due_ms
            heapq.heappush(self._heap, (due_ms, *place))

    def pop_due(self, now_ms: int, most: int) -> Iterator[tuple[int, str]]:
        """Remove at most `most` alarms that are due; yield each one's partition and session id."""
        while most and self._heap and self._heap[0][0] <= now_ms:
            due_ms, partition, session_id = heapq.heappop(self._heap)
            if self._set.get((partition, session_id)) == due_ms:  # else replaced by an earlier one
                del self._set[partition, session_id]
                most -= 1
                yield partition, session_id

    @property
    def next_ms(self) -> int | None:
        """The earliest alarm's time, or None if there is none."""
        return self._heap[0][0] if self._heap else None


class DueSessions:
    """The sessions' alarms, and the decisions when they ring."""

    def __init__(
        self,
        acting: Acting,
        request_ends: RequestEnds,
    ) -> None:
        self._partitions: Mapping[int, Partition] = acting.partitions
        self._contexts = acting.contexts
        self._outbox = acting.outbox
        self._request_ends = request_ends
        self._failures = acting.failures
        self._alarms = Alarms()

    @property
    def next_ms(self) -> int | None:
        """The earliest alarm's time, or None if there is none."""
        return self._alarms.next_ms

    def expect(self, partition: Partition, session: Session) -> None:
        """Set a session's alarm."""
        self._alarms.set(partition.number, session.session_id, self._due_ms(session))

    def expect_spilled(self, partition: Partition) -> None:
        """Set the alarms of a partition's spilled sessions."""
        for session_id, spilled in partition.sessions.spilled.items():
            self._alarms.set(partition.number, session_id, spilled.due_ms)

    def expect_end_of_run(self) -> None:
        """Set all sessions' alarms anew: a run has finished. Spilled sessions are read back."""
        ends = self._contexts.run_ends
        due_ms = (ends.finished_ms or 0) + ends.grace_ms
        for partition in self._partitions.values():
            for session in partition.sessions.in_memory if partition.owned else ():
                self.expect(partition, session)
            for name, spilled in partition.sessions.spilled.items() if partition.owned else ():
                own_ms = due_ms if spilled.due_ms is None else min(spilled.due_ms, due_ms)
                self._alarms.set(partition.number, name, own_ms)

    def decide(self, now: int) -> None:
        """Decide deadlines that have passed, the earliest first, and leave some to later calls.

        After an outage the deadlines of all idle sessions have passed, and each session may have to
        be read back.
        """
        for number, session_id in self._alarms.pop_due(now, _MOST_AT_ONCE):
            partition = self._partitions.get(number)
            if partition is None or not partition.owned:
                continue
            due = partition.sessions.spilled_due_ms(session_id)
            later = due is not None and due > min(now, partition.may_pass_ms(now))
            if due is not None and later and self._contexts.run_ends.finished_ms is None:
                self._wait_for(partition, session_id, due, now)
            elif (session := partition.sessions.get(session_id)) is not None:
                with self._failures.guard(partition, session, "decide its deadlines"):
                    self._decide(partition, session, now)

    def _decide(self, partition: Partition, session: Session, now: int) -> None:
        due = self._due_ms(session)
        if due is None:
            return
        as_of = partition.may_pass_ms(now)
        if due <= min(now, as_of) and not partition.reading_back(session.session_id):
            decision = deadlines.overdue(session, self._contexts.at(partition, as_of))
            self._outbox.carry_out(partition, decision)
        self._wait_for(partition, session.session_id, due, now)

    def _due_ms(self, session: Session) -> int | None:
        return deadlines.due_ms(session, self._contexts.run_ends.due_ms(session.opened))

    def _wait_for(self, partition: Partition, session_id: str, due: int, now: int) -> None:
        if partition.may_pass_ms(now) < due <= now:
            self._request_ends.want()
        self._alarms.set(partition.number, session_id, max(due, now + _LOOK_AGAIN_MS))
