"""Partition and copy counts of new topics. Pure."""

from collections.abc import Iterable, Mapping

from infra.errors import PartitionsDiffer, TopicMismatch
from schemas.topics import SAME_PARTITIONS, Topic


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


def least_insync(copies: int) -> int:
    """Return the copies to wait for: a broker may be away, and no record is on one alone."""
    return max(1, copies - 1)


def _must_be_equal(spec: Topic) -> list[str]:
    """Return the names of the topics, this one included, that `SAME_PARTITIONS` has it among."""
    groups = [[topic.name for topic in group] for group in SAME_PARTITIONS]
    return next((names for names in groups if spec.name in names), [])
