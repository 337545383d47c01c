"""Partition and copy counts of new topics. Pure."""

from collections.abc import Iterable, Mapping

from seamlessflow.infra.errors import PartitionsDiffer, SeamlessFlowError, TopicMismatch
from seamlessflow.schemas.topics import PROMPTS, SAME_PARTITIONS, Topic

_SPARE = 4
"""For so many workers one slot more, for those that join while the run goes on."""


class TooFewSlots(SeamlessFlowError):
    """More workers roll out than `prompts` has partitions, and each needs one of its own."""

    lasting = True

    def __init__(self, topic: str, workers: int, found: int, wanted: int) -> None:
        self.topic = topic
        self.workers = workers
        self.found = found
        self.wanted = wanted
        super().__init__(
            f"topic {topic} has {found} partitions, and {workers} workers that roll out need one "
            "each: add some, and as many to its .dlq, with kafka-topics.sh --alter --topic "
            f"{topic} --partitions {wanted}; on an embedded Kafka begin in another directory (out)"
        )


def topic_counts(
    specs: Iterable[Topic], asked: Mapping[str, int], there: Mapping[str, int], prefix: str = ""
) -> dict[str, int]:
    """Return the number of partitions by topic: as it exists, as asked for, else the contract's.

    A topic of `SAME_PARTITIONS` has as many as those that must be equal to it. `there` has full
    names. Pure. Raises `TopicMismatch` and `PartitionsDiffer`.
    """
    counts = {}
    for spec in specs:
        wish, have = asked.get(spec.name), there.get(prefix + spec.name)
        if wish and have and wish != have:
            raise TopicMismatch(prefix + spec.name, wish, have)
        group = _must_be_equal(spec)
        found = {name: there.get(prefix + name) or asked.get(name) for name in group or [spec.name]}
        given = {prefix + name: count for name, count in found.items() if count}
        if len(set(given.values())) > 1:
            raise PartitionsDiffer(given)
        counts[spec.name] = next(iter(given.values()), spec.partitions)
        if len(group) == 1 and counts[spec.name] != spec.partitions:
            raise TopicMismatch(prefix + spec.name, spec.partitions, counts[spec.name])
    return counts


def slots_asked(workers: int, there: Mapping[str, int], prefix: str = "") -> dict[str, int]:
    """Return the partitions of a new `prompts` for so many workers that roll out, by topic.

    Empty where those of the contract are enough, and for one that exists. Raises `TooFewSlots` if
    that has fewer than there are workers.
    """
    topic = prefix + PROMPTS.name
    wanted, found = workers + workers // _SPARE, there.get(topic)
    if found is not None and found < workers:
        raise TooFewSlots(topic, workers, found, wanted)
    return {PROMPTS.name: wanted} if found is None and wanted > PROMPTS.partitions else {}


def least_insync(copies: int) -> int:
    """Return the copies to wait for: a broker may be away, and no record is on one alone."""
    return max(1, copies - 1)


def _must_be_equal(spec: Topic) -> list[str]:
    """Return the names of the topics, this one included, that `SAME_PARTITIONS` has it among."""
    groups = [[topic.name for topic in group] for group in SAME_PARTITIONS]
    return next((names for names in groups if spec.name in names), [])
