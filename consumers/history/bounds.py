"""Bounds of the recorded events: where each partition of `sessions` begins and ends now."""

from consumers.history.selection import Range, SessionSelection
from infra.errors import KafkaUnavailable
from infra.kafka.bounds import BoundsLookup
from infra.kafka.outage import Stopping, never
from infra.kafka.start.cluster import find_cluster
from infra.settings import KafkaSettings
from schemas.topics import SESSIONS

_ASK_S = 30.0


def partition_bounds(
    settings: KafkaSettings, selection: SessionSelection, stopping: Stopping = never
) -> dict[int, Range]:
    """Return first offset and the one behind the last event of partitions that may be chosen.

    Raises what `find_cluster` raises, and `KafkaUnavailable` for a partition without a leader.
    """
    count = len(find_cluster(settings, [SESSIONS], stopping).numbers(SESSIONS))
    places = [(SESSIONS.name, number) for number in selection.partitions(count)]
    lookup = BoundsLookup(settings)
    try:
        found = lookup.bounds(places, _ASK_S)
    finally:
        lookup.close()
    if missing := [number for topic, number in places if (topic, number) not in found]:
        reason = f"no leader for partitions {missing} of {SESSIONS.name}"
        raise KafkaUnavailable(settings.bootstrap_servers, _ASK_S, reason)
    return {number: found[topic, number] for topic, number in places}
