"""Bounds of the recorded events: where each partition of `sessions` begins and ends now."""

from seamlessflow.infra.deadline import Stopping, never
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.outage import ASK_S, Outage
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.select.selection import Range, SessionSelection
from seamlessflow.schemas.topics import SESSIONS


def partition_bounds(
    settings: KafkaSettings, selection: SessionSelection, stopping: Stopping = never
) -> dict[int, Range]:
    """Return first offset and the one behind the last event of partitions that may be chosen.

    Raises `SettingsRejected` for offsets of a partition that is not there, and what `find_cluster`
    and `Outage.endure` raise.
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
