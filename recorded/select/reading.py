"""Reading recorded sessions: their events as they are now, folded until each session ends."""

from collections.abc import Callable, Iterator

from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.outage import ASK_S, Outage
from seamlessflow.infra.kafka.reader import ReadingRules
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.unreadable import Skipped, Unreadable
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.recorded.select.selection import Range, SessionSelection
from seamlessflow.schemas.topics import SESSIONS

Show = Callable[[int, int], None]
"""Function that gets two counts: further events read, and all events to read."""
_COUNTED = 1_000
"""Events after which the progress is shown, and a request to end is looked for."""


class ReadingStopped(SeamlessFlowError):
    """The command was asked to end before it had read all events."""

    lasting = False

    def __init__(self) -> None:
        super().__init__("asked to end before all events were read")


def partition_bounds(
    settings: KafkaSettings, selection: SessionSelection, stopping: Stopping = never
) -> dict[int, Range]:
    """Return for each partition that may be chosen its first offset and the one behind its last.

    Raises `SettingsRejected` for offsets on a missing partition, and what `find_cluster` and
    `Outage.endure` raise.
    """
    count = len(find_cluster(settings, [SESSIONS], stopping).numbers(SESSIONS))
    places = [(SESSIONS.name, number) for number in selection.partitions(count)]
    lookup = BoundsLookup(settings)
    outage = Outage(settings, stopping)
    try:
        # A broker that has just started has no leader for its partitions yet.
        while len(bounds := lookup.bounds(places, ASK_S)) < len(places):
            outage.endure_silence(f"{len(places) - len(bounds)} partitions without a leader")
    finally:
        lookup.close()
    return {number: bounds[topic, number] for topic, number in places}


def ended_sessions(
    settings: KafkaSettings,
    fold: Refold,
    bounds: Range,
    skipped: Skipped,
    count: Callable[[int], None],
    stopping: Stopping,
) -> Iterator[Session]:
    """Yield the sessions that end within the bounds, and that the fold's selection may choose.

    `count` is called with the number of further events read. Raises `ReadingStopped`, and what
    `read_partitions` raises.
    """
    if bounds[0] >= bounds[1]:
        return
    place = (SESSIONS.name, fold.log.number)
    events = 0
    starts = {place: bounds[0]}
    ends = {place: bounds[1]}
    for item in read_partitions(
        settings,
        [place],
        starts=starts,
        ends=ends,
        rules=ReadingRules(folds=True),
        stopping=stopping,
    ):
        events += 1
        if events % _COUNTED == 0:
            count(_COUNTED)
            if stopping():
                raise ReadingStopped
        if isinstance(item.record, Unreadable):
            skipped.apply(item.topic, item.record)
        elif (session := fold.apply(item.record, item.offset)) is not None:
            yield session
    count(events % _COUNTED)
