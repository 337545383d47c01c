"""Output of a session that counts, by the manager's fold. Pure."""

from collections.abc import Iterable, Iterator

from seamlessflow.consumers.trajectories.sessions.logged_partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.message_keys import any_strictness
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import SESSIONS

OUTPUT = (r.TurnProgressed, r.TurnInterrupted, r.TurnCompleted)


def accepted_output(records: Iterable[Received]) -> frozenset[int]:
    """Return the offsets in `sessions` of the output that the manager accepted.

    `records`: of one session, with the claims of its partition. If retention removed the session's
    beginning, nothing can be folded, and all of its output is returned. Raises `NewerRelease`.
    """
    # Producers have clocks of their own, so records in order of time may be in another order.
    events = sorted(
        (item for item in records if item.topic == SESSIONS.name), key=lambda item: item.offset
    )
    if any(isinstance(item.record, r.SessionOpened) for item in events):
        return frozenset(_folded(events))
    return frozenset(item.offset for item in events if isinstance(item.record, OUTPUT))


def _folded(events: Iterable[Received]) -> Iterator[int]:
    log: LoggedPartition | None = None
    for item in events:
        log = log or LoggedPartition(item.partition)
        folded = log.apply(item.record, item.offset, any_strictness)
        if folded.accepted and isinstance(item.record, OUTPUT):
            yield item.offset
