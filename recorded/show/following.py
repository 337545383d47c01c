"""Following a session while it grows. Called by `seamlessflow show --follow`.

The history is folded once, and each further event by itself. It ends when the session is finalized.
"""

import time
from collections.abc import Sequence
from typing import Protocol

from seamlessflow.consumers.trajectories.sessions.fold import Folded
from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.show.log import IN_ORDER_OF_FLOW, concerns, in_order, key_on
from seamlessflow.recorded.show.observed import ObservedSession
from seamlessflow.recorded.show.tail import Tail
from seamlessflow.schemas.records import Record, Trajectory
from seamlessflow.schemas.topics import SESSIONS

_TRAJECTORY_S = 10.0
"""Time to wait for a finalized session's trajectory, which is committed after the event."""


class SessionNotOpened(SeamlessFlowError):
    """A session that was waited for and did not come."""

    def __init__(self, session_id: str, place: str, waited_s: float) -> None:
        self.session_id = session_id
        self.waited_s = waited_s
        super().__init__(
            f"no session {session_id} on {place} within {waited_s:g} s (--wait); finalized ones "
            "are listed by seamlessflow show"
        )


class FollowDisplay(Protocol):
    """Display for a session that grows. Used from one thread."""

    def show(self, item: Received, folded: Folded | None, observed: ObservedSession) -> None:
        """Show a record; `folded` is the fold's answer to an event in the session, else None."""

    def draw(self, observed: ObservedSession) -> None:
        """Show the session; called several times a second."""

    def waiting(self, what: str) -> None:
        """Show that the session is not there yet; called once."""


class Following:
    """The session that is followed; `all_topics` also shows its records on other topics."""

    def __init__(
        self,
        settings: KafkaSettings,
        observed: ObservedSession,
        shown: FollowDisplay,
        stopping: Stopping,
        all_topics: bool = False,
    ) -> None:
        self._settings = settings
        self._observed = observed
        self._shown = shown
        self._stopping = stopping
        self._all_topics = all_topics
        self._emitted = False

    def run(self, wait_s: float, skipped: Skipped) -> bool:
        """Show the session until it is finalized, and return True; False once `stopping`.

        Raises `SessionNotOpened` if the log is read to its end and nothing opens the session for
        `wait_s`, and `KafkaUnavailable`.
        """
        places = self._places()
        tail = Tail(self._settings, places, self._wanted, skipped, self._stopping)
        began_s: float | None = None
        finalized_s: float | None = None
        for batch in tail.batches():
            self._take(batch if began_s is not None else in_order(batch))
            now_s = time.monotonic()
            if began_s is None:
                began_s = now_s
                if self._observed.session is None:
                    self._shown.waiting(
                        f"waiting for session {self._observed.asked} on {_named(places[0])}, "
                        f"up to {wait_s:g} s"
                    )
            if self._observed.session is None and now_s - began_s > wait_s:
                raise SessionNotOpened(self._observed.asked, _named(places[0]), wait_s)
            if self._observed.finalized:
                finalized_s = now_s if finalized_s is None else finalized_s
                if not self._all_topics or self._emitted or now_s - finalized_s > _TRAJECTORY_S:
                    return True
        return False

    def _take(self, batch: Sequence[Received]) -> None:
        for item in batch:
            folded = self._observed.apply(item) if item.topic == SESSIONS.name else None
            if folded is not None or item.topic != SESSIONS.name:
                self._shown.show(item, folded, self._observed)
            followed = self._observed.session
            if isinstance(item.record, Trajectory) and followed is not None:
                self._emitted |= item.record.session_id == followed.session_id
        self._shown.draw(self._observed)

    def _wanted(self, record: Record) -> bool:
        return self._observed.concerns(record) or concerns(record, self._observed.asked)

    def _places(self) -> list[LogPartition]:
        """Return the partitions to read, the one of `sessions` first."""
        topics = IN_ORDER_OF_FLOW if self._all_topics else (SESSIONS,)
        cluster = find_cluster(self._settings, topics, self._stopping)
        places = []
        for topic in topics:
            numbers = cluster.numbers(topic)
            key = key_on(topic, self._observed.asked)
            if key is not None:
                numbers = numbers[partition_of(key, len(numbers)) :][:1]
            places += [(topic.name, number) for number in numbers]
        return sorted(places, key=lambda place: place[0] != SESSIONS.name)


def _named(place: LogPartition) -> str:
    return f"{place[0]}[{place[1]}]"
