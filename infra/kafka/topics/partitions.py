"""Partition and copy counts for new topics, and a key's partition. Pure.

A key's partition is the one that Kafka's own partitioner chooses (`murmur2_random`).
"""

from collections.abc import Iterable, Mapping

from seamlessflow.infra.errors import PartitionsDiffer, SeamlessFlowError, TopicMismatch
from seamlessflow.schemas.topics import PROMPTS, SAME_PARTITIONS, Topic

_SPARE = 4
"""So many workers get one spare slot, for workers that join while the run goes on."""

_M = 0x5BD1E995
_SEED = 0x9747B28C
_WORD = 0xFFFFFFFF


class TooFewSlots(SeamlessFlowError):
    """More workers roll out than `prompts` has partitions, and each needs its own."""

    lasting = True

    def __init__(self, topic: str, workers: int, present: int, wanted: int) -> None:
        self.topic = topic
        self.workers = workers
        self.present = present
        self.wanted = wanted
        super().__init__(
            f"topic {topic} has {present} partitions, and {workers} workers that roll out need one "
            "each: add some, and as many to its .dlq, with kafka-topics.sh --alter --topic "
            f"{topic} --partitions {wanted}; on an embedded Kafka begin in another directory (out)"
        )


def partition_of(key: str, partitions: int) -> int:
    """Return the partition to which this project's producers send records with this key."""
    return (_murmur2(key.encode()) & 0x7FFFFFFF) % partitions


def topic_counts(
    specs: Iterable[Topic], asked: Mapping[str, int], existing: Mapping[str, int], prefix: str = ""
) -> dict[str, int]:
    """Return each topic's partition count: as it exists, as asked for, else the contract's.

    A topic in `SAME_PARTITIONS` has as many as those that must be equal to it. `existing` has full
    names. Pure. Raises `TopicMismatch` and `PartitionsDiffer`.
    """
    counts = {}
    for spec in specs:
        wish = asked.get(spec.name)
        have = existing.get(prefix + spec.name)
        if wish and have and wish != have:
            raise TopicMismatch(prefix + spec.name, wish, have)
        group = _must_be_equal(spec)
        of_group = {
            name: existing.get(prefix + name) or asked.get(name) for name in group or [spec.name]
        }
        decided = {prefix + name: count for name, count in of_group.items() if count}
        if len(set(decided.values())) > 1:
            raise PartitionsDiffer(decided)
        counts[spec.name] = next(iter(decided.values()), spec.partitions)
        if len(group) == 1 and counts[spec.name] != spec.partitions:
            raise TopicMismatch(prefix + spec.name, spec.partitions, counts[spec.name])
    return counts


def slots_asked(workers: int, existing: Mapping[str, int], prefix: str = "") -> dict[str, int]:
    """Return, by topic, how many partitions a new `prompts` needs for workers that roll out.

    Empty if the contract's count is enough, or if the topic exists. Raises `TooFewSlots` if an
    existing topic has fewer partitions than there are workers.
    """
    topic = prefix + PROMPTS.name
    wanted = workers + workers // _SPARE
    present = existing.get(topic)
    if present is not None and present < workers:
        raise TooFewSlots(topic, workers, present, wanted)
    return {PROMPTS.name: wanted} if present is None and wanted > PROMPTS.partitions else {}


def least_insync(copies: int) -> int:
    """Return how many copies to wait for: all but one, so that a broker may be away."""
    return max(1, copies - 1)


def _must_be_equal(spec: Topic) -> list[str]:
    """Return the names in this topic's group of `SAME_PARTITIONS`, or none if it has no group."""
    groups = [[topic.name for topic in group] for group in SAME_PARTITIONS]
    return next((names for names in groups if spec.name in names), [])


def _murmur2(data: bytes) -> int:
    """Return Austin Appleby's MurmurHash2 with the seed of Kafka's `Utils.murmur2`."""
    value = _SEED ^ len(data)
    whole = len(data) - len(data) % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _M & _WORD
        word = (word ^ word >> 24) * _M & _WORD
        value = value * _M & _WORD ^ word
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _WORD
    value = (value ^ value >> 13) * _M & _WORD
    return value ^ value >> 15
