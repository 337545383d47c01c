"""The same log read again: from its start, from where a takeover would, and with repeats."""

from dataclasses import replace

from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.consumers.trajectories.sessions.partition import Partition, PartitionProgress
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Record, SessionOpened, Trajectory
from tests.properties.choices import Choices


def read(
    events: list[Record], number: int, strictness: Strictness, metadata: str = ""
) -> dict[str, Trajectory]:
    """Return a log's trajectories by session, read from the place in the committed metadata."""
    progress = PartitionProgress.decode(metadata)
    partition = Partition(number, progress, "reader")
    made: dict[str, Trajectory] = {}
    for offset in range(max(progress.rebuild, 0), len(events)):
        folded = partition.apply(events[offset], offset, lambda policy: strictness)
        session = folded.session
        if folded.accepted and session is not None and session.finalized_at_ms is not None:
            made[session.session_id] = trajectory(session, number)
            partition.end(session)
    return made


def repeated(events: list[Record], choices: Choices) -> list[Record]:
    """Return the log with every event twice, and some of them once more later."""
    twice: list[Record] = []
    late: list[Record] = []
    for event in events:
        twice += [event, event]
        if late and choices.one_in(2):
            twice.append(late.pop(0))
        if choices.one_in(3) and not isinstance(event, SessionOpened):
            late.append(event)  # ids are used once, which is decided before a session is opened
    return twice


def as_bytes(made: Trajectory) -> bytes:
    """Return the bytes of a trajectory."""
    return encode(made)


def without_places(made: Trajectory) -> bytes:
    """Return the bytes of a trajectory without offsets and ignored events, which repeats change."""
    nodes = tuple(replace(node, log_offset=0) for node in made.nodes)
    return encode(replace(made, nodes=nodes, first_offset=0, last_offset=0, ignored_events={}))
