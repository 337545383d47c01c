"""Rules of which dead letters may be retried. Pure.

A retried record stands at the end of its partition. That is right for a queue of independent work,
and for nothing else. In a log the order is the meaning. The record is still at its own place there,
where a release that can decode it reads it.
"""

from collections.abc import Mapping

from seamlessflow.recorded.dead_letters.letters import DeadLetter
from seamlessflow.schemas.codec import UndecodableRecord, decode
from seamlessflow.schemas.records import Record, Task
from seamlessflow.schemas.topics import (
    CONTROL,
    ENDED_SESSIONS,
    FLEET,
    PROMPTS,
    REPLIES,
    SESSIONS,
    TOPICS,
    TRAJECTORIES,
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
}
"""Reasons why letters of a topic are never retried, with what to do instead."""
_UNDECODABLE = "it still cannot be decoded (dlq show has the reason); --force sends it all the same"
RETRIED = tuple(name for name in TOPICS if name not in REFUSED)
"""Topics whose records are independent of each other, whatever their order."""


def decoded_letter(letter: DeadLetter) -> Record:
    """Return the record of a letter. Raises `UndecodableRecord` if none of its topic is readable.

    As readers do it: a key that is not UTF-8 is garbage also.
    """
    record = decode(letter.value)
    if not isinstance(record, TOPICS[letter.topic].records):
        raise UndecodableRecord(f"{type(record).__name__} does not belong on {letter.topic}")
    try:
        (letter.key or b"").decode()
    except UnicodeDecodeError as error:
        raise UndecodableRecord(f"its key is not UTF-8: {error}") from error
    return record


def refusal(letter: DeadLetter, now_ms: int, force: bool = False) -> str:
    """Return why a letter is not retried; empty if it is. `force`: even if it is undecodable."""
    if letter.topic in REFUSED:
        return REFUSED[letter.topic]
    if letter.source is None:
        return "another program wrote it: its headers do not name its source"
    try:
        record = decoded_letter(letter)
    except UndecodableRecord:
        return "" if force else _UNDECODABLE
    return _too_late(record, now_ms)


def _too_late(record: Record, now_ms: int) -> str:
    if isinstance(record, Task):
        if record.deadline_ms > now_ms:
            return ""
        return "its deadline is over; the scheduler issues its sample again as a further attempt"
    if getattr(record, "expires_at_ms", now_ms) > now_ms:
        return ""
    return (
        "the command has expired, so its client has been answered (500 or 504); the client has to "
        "call again"
    )
