"""Records that cannot be decoded, as readers deliver and observers count them.

Garbage is what no release writes: it never counts, whichever process reads it. A newer release's
record counts for that release. A record whose blob cannot be read counts for all. A process that
folds stops at such a record. An observer reports that it left it out.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import Headers


@dataclass(frozen=True, slots=True)
class Unreadable(Record):
    """Stand-in for a record that cannot be decoded: its place in the log counts as read."""

    error: str
    missed: SeamlessFlowError | None = None
    """Set if the record counts, though this process cannot read it; None for garbage."""


@dataclass(frozen=True, slots=True)
class Raw(Record):
    """Bytes as they stand on a topic; with `decode=Raw` a reader decodes nothing."""

    value: bytes
    key: bytes | None = None


class Letter(NamedTuple):
    """Garbage as it stands on its topic."""

    topic: str
    partition: int
    offset: int
    key: str | bytes | None
    value: bytes
    error: str
    headers: Headers = ()


@dataclass(slots=True)
class Skipped:
    """Records that an observer could not read."""

    garbage: Counter[str] = field(default_factory=Counter)
    """Their count by topic."""
    missed: dict[str, SeamlessFlowError] = field(default_factory=dict)
    """First record that counts, by topic."""

    def apply(self, topic: str, record: Unreadable) -> None:
        """Count a record from the topic."""
        if record.missed is None:
            self.garbage[topic] += 1
        else:
            self.missed.setdefault(topic, record.missed)

    @property
    def notices(self) -> list[str]:
        """Sentences for the user; none if every record could be read."""
        return [
            *(
                f"skipped {count} unreadable {'record' if count == 1 else 'records'} of {topic}"
                for topic, count in self.garbage.items()
            ),
            *(f"incomplete: {missed}" for missed in self.missed.values()),
        ]
