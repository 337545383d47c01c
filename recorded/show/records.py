"""Records of one session on all topics.

Called by `seamlessflow show --records`. `requests`, `prompts` and `replies` are kept for hours or
days only, so an old session has fewer.
"""

from collections.abc import Iterable

from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.identity import session_id as session_of
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.records import Record, Task
from seamlessflow.schemas.topics import (
    PROMPTS,
    REPLIES,
    REQUESTS,
    SESSIONS,
    TASKS,
    TRAJECTORIES,
    Topic,
)

IN_ORDER_OF_FLOW = (TASKS, REQUESTS, SESSIONS, PROMPTS, REPLIES, TRAJECTORIES)
_PLACES = {topic.name: place for place, topic in enumerate(IN_ORDER_OF_FLOW)}
_KEYED_BY_SESSION = (REQUESTS, SESSIONS)


def session_records(settings: KafkaSettings, session_id: str, skipped: Skipped) -> list[Received]:
    """Return the records that concern a session; `session_id` is its id, not its name."""
    return in_order(
        item
        for topic in IN_ORDER_OF_FLOW
        for item in read_topic(settings, topic, skipped, key_on(topic, session_id))
        if concerns(item.record, session_id)
    )


def in_order(items: Iterable[Received]) -> list[Received]:
    """Return records in the order in which they were written; of one time, in that of the flow."""
    return sorted(items, key=lambda item: (item.timestamp_ms, _PLACES[item.topic], item.offset))


def concerns(record: Record, session_id: str) -> bool:
    """Return True if the record is about the session; a command may use the session's name."""
    if isinstance(record, Task):
        return session_of(record.group_id, record.sample, record.attempt) == session_id
    named = getattr(record, "session_id", None)
    return named in (session_id, session_name(session_id))


def key_on(topic: Topic, session_id: str) -> str | None:
    """Return the key of the session's records on a topic, or None if they have several."""
    return session_name(session_id) if topic in _KEYED_BY_SESSION else None
