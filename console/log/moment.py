"""A moment of a run: a place on the log. Pages and links name by it what they show. Pure.

Its form is `topic:partition:offset`, such as `sessions:3:77`. A topic with one partition leaves the
partition out: `control:1234`.
"""

import re
from dataclasses import dataclass

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.client import LogPartition
from seamlessflow.schemas.topics import LETTERED

_FORM = re.compile(r"([a-z_.]{1,80}):(?:(\d{1,9}):)?(\d{1,18})")
_SINGLE = {name for topic in LETTERED.values() if topic.partitions == 1 for name in (topic.name,)}
READ_TOPICS = tuple(
    name for topic in LETTERED.values() for name in (topic.name, topic.dead_letters)
)
"""All topics that a console reads, in the contract's order."""


class BadMoment(SeamlessFlowError):
    """A text that names no place on a log."""

    lasting = True

    def __init__(self, text: str, reason: str, part: str = "at") -> None:
        self.text = text[:200]
        self.reason = reason
        super().__init__(f"{part}={self.text}: {reason}")


class MomentNotOnLog(SeamlessFlowError):
    """A place where the log has no record, or has none any more."""

    def __init__(self, moment: "Moment", reason: str, part: str = "at") -> None:
        self.moment = moment
        self.reason = reason
        super().__init__(f"{part}={moment}: {reason}")


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """Place of the last record that counts."""

    topic: str
    partition: int
    offset: int

    @property
    def place(self) -> LogPartition:
        """Topic and partition."""
        return self.topic, self.partition

    def __str__(self) -> str:
        if self.topic in _SINGLE and self.partition == 0:
            return f"{self.topic}:{self.offset}"
        return f"{self.topic}:{self.partition}:{self.offset}"


def parse_moment(text: str) -> Moment | None:
    """Return the moment that a text names, or None for an empty text, which means now.

    Raises `BadMoment`.
    """
    if not text:
        return None
    match = _FORM.fullmatch(text)
    if match is None:
        raise BadMoment(text, "a moment is TOPIC:PARTITION:OFFSET, or control:OFFSET")
    topic, partition, offset = match.groups()
    if topic not in READ_TOPICS:
        raise BadMoment(text, f"no topic {topic}; topics are {', '.join(LETTERED)}, each with .dlq")
    if partition is None and topic not in _SINGLE:
        raise BadMoment(text, f"{topic} has several partitions: {topic}:PARTITION:OFFSET")
    return Moment(topic, int(partition or 0), int(offset))
