"""The retry of dead letters: back to the end of their source partition, each once.

This is right only for a queue of independent work. In a log, the order is the meaning. There, a
release that can decode the record reads it at its own place.

The record is acknowledged before its mark is written. If a command is killed in between, the next
command sends the letter again. The retried topics bear that: a command is carried out only once by
its id, and a task's session is opened only once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import NamedTuple

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.errors import DeliveryFailed
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.dead_letters.letters import (
    DeadLetter,
    RetryMark,
    decoded_letter,
    mark_headers,
    read_letters,
)
from seamlessflow.schemas.codec import UndecodableRecord
from seamlessflow.schemas.records import Record, Task
from seamlessflow.schemas.topics import (
    ARMS,
    CONTROL,
    ENDED_SESSIONS,
    FLEET,
    PROMPTS,
    REPLIES,
    SESSIONS,
    SHARED,
    TRAJECTORIES,
    Headers,
    dead_letters_of,
)

_IN_PLACE = "the record is still at its own place, where a release that can decode it reads it"
REFUSED: Mapping[str, str] = {
    SESSIONS.name: (
        "the order of events is their meaning, and a copy at the end would be another event; "
        f"{_IN_PLACE}. A session that was given up stays so, and its sample is tried again"
    ),
    CONTROL.name: (
        "decisions count in their order, and a copy at the end would be a decision of now; "
        f"{_IN_PLACE}, and processes report their state again when they start"
    ),
    FLEET.name: (
        "the last record of a key counts, and an old one would hide newer ones; its sender sends "
        "its state again by itself: heartbeats each second, policies with the next weights"
    ),
    ARMS.name: (
        "the last record of a key counts, and an old one would hide newer ones; the scheduler "
        "folds them from control where the last snapshot does not cover them"
    ),
    TRAJECTORIES.name: (
        f"{_IN_PLACE}, and a copy would count a second time there; restart the trainer with that "
        "release, or let the group's further attempts take its place"
    ),
    ENDED_SESSIONS.name: (f"{_IN_PLACE} at each takeover: restart the managers with that release"),
    PROMPTS.name: (
        "a dispatch is for one worker at one time, and the manager has given the turn to another; "
        "do nothing"
    ),
    REPLIES.name: (
        "it answers a call that has ended; the client's own retry gets the answer from the log"
    ),
    SHARED.name: "`share take` looks at all that was published again: repair what it complains of",
}
"""By topic, the reason why its letters are never retried, with what to do instead."""
_UNDECODABLE = "it still cannot be decoded (dlq show has the reason); --force sends it all the same"
_FLUSH_S = 30.0
_REPORT_S = 5.0
"""Time in which the report of an acknowledged record must arrive from its thread."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Letters that a command names."""

    topics: tuple[str, ...]
    partition: int | None = None
    source: int | None = None

    def holds(self, letter: DeadLetter) -> bool:
        """Return True if the letter is among them. Its partition fits, since no other was read."""
        return self.source in (None, letter.source)


class SentLetter(NamedTuple):
    """A record that was sent again, or would be, with its first offset and its new one."""

    topic: str
    partition: int
    source: int
    sent_to: int
    """-1 in a dry run."""


@dataclass(slots=True)
class RetryOutcome:
    """Letters by their outcome."""

    sent: list[SentLetter] = field(default_factory=list)
    earlier: int = 0
    """Count of letters that were retried before."""
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Letter counts by topic and reason."""


def retry(
    settings: KafkaSettings,
    chosen: Chosen,
    *,
    dry_run: bool = False,
    force: bool = False,
    seen: Callable[[int], None] = lambda count: None,
) -> RetryOutcome:
    """Send the chosen letters that may be retried; call `seen` with a growing count.

    Raises what `read_letters` raises, `KafkaUnavailable` and `DeliveryFailed`.
    """
    outcome = RetryOutcome()
    marked = _marked(settings, chosen)
    producer = None if dry_run else Producer(settings, "retry")
    try:
        letters = _letters(read_letters(settings, chosen.topics, chosen.partition), chosen)
        for count, letter in enumerate(letters, 1):
            seen(count)
            if letter.place in marked:
                outcome.earlier += 1
            elif reason := refusal(letter, now_ms(), force):
                outcome.refused[letter.topic, reason] += 1
            else:
                sent_to = -1 if producer is None else _send(producer, letter)
                source = -1 if letter.source is None else letter.source
                outcome.sent.append(SentLetter(letter.topic, letter.partition, source, sent_to))
    finally:
        if producer is not None:
            producer.close()
    return outcome


def refusal(letter: DeadLetter, at_ms: int, force: bool = False) -> str:
    """Return why a letter is not retried; empty if it is. `force`: also if it is undecodable."""
    if letter.topic in REFUSED:
        return REFUSED[letter.topic]
    if letter.source is None:
        return "another program wrote it: its headers do not name its source"
    try:
        record = decoded_letter(letter)
    except UndecodableRecord:
        return "" if force else _UNDECODABLE
    return _too_late(record, at_ms)


def _too_late(record: Record, at_ms: int) -> str:
    if isinstance(record, Task):
        if record.deadline_ms > at_ms:
            return ""
        return "its deadline is over; the scheduler issues its sample again as a further attempt"
    if getattr(record, "expires_at_ms", at_ms) > at_ms:
        return ""
    return (
        "the command has expired, so its client has been answered (500 or 504); the client has to "
        "call again"
    )


def _marked(settings: KafkaSettings, chosen: Chosen) -> set[tuple[str, int, int]]:
    records = read_letters(settings, chosen.topics, chosen.partition)
    return {record.place for record in records if isinstance(record, RetryMark)}


def _letters(records: Iterable[DeadLetter | RetryMark], chosen: Chosen) -> Iterable[DeadLetter]:
    return (record for record in records if isinstance(record, DeadLetter) and chosen.holds(record))


def _send(producer: Producer, letter: DeadLetter) -> int:
    """Send the record and then its mark, each acknowledged; return the record's new offset."""
    offset = _appended(producer, letter.topic, letter, letter.value, letter.key, letter.headers)
    marks = mark_headers(letter, offset)
    topic = dead_letters_of(letter.topic)
    _appended(producer, topic, letter, b"", None, marks)
    return offset


def _appended(
    producer: Producer,
    topic: str,
    letter: DeadLetter,
    value: bytes,
    key: bytes | None,
    headers: Headers,
) -> int:
    reports: SimpleQueue[tuple[DeliveryFailed | None, int]] = SimpleQueue()
    producer.send_bytes(
        topic,
        value,
        key,
        letter.partition,
        headers,
        on_delivery=lambda failure, offset: reports.put((failure, offset)),
    )
    producer.flush(_FLUSH_S)
    failure, offset = reports.get(timeout=_REPORT_S)
    if failure is not None:
        raise failure
    return offset
