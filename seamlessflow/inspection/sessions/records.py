"""All records of one session on all topics, in the order in which they were written.

Called by `seamlessflow show --records`. `requests`, `prompts` and `replies` are kept for hours or
days only, so an old session has fewer.
"""

from infra.kafka.client import Received
from infra.kafka.unreadable import Skipped
from infra.kafka.whole_topic import read_topic
from infra.settings import KafkaSettings
from schemas.identity import session_id as session_of
from schemas.identity import session_name
from schemas.records import Record, Task
from schemas.topics import PROMPTS, REPLIES, REQUESTS, SESSIONS, TASKS, TRAJECTORIES, Topic

_IN_ORDER_OF_FLOW = (TASKS, REQUESTS, SESSIONS, PROMPTS, REPLIES, TRAJECTORIES)
_KEYED_BY_SESSION = (REQUESTS, SESSIONS)


def session_records(settings: KafkaSettings, session_id: str, skipped: Skipped) -> list[Received]:
    """Return the records that concern a session; `session_id` is its id, not its name."""
    found = [
        (item.timestamp_ms, place, item.offset, item)
        for place, topic in enumerate(_IN_ORDER_OF_FLOW)
        for item in read_topic(settings, topic, skipped, _key(topic, session_id))
        if concerns(item.record, session_id)
    ]
    return [item for *_, item in sorted(found, key=lambda entry: entry[:3])]


def concerns(record: Record, session_id: str) -> bool:
    """Return True if the record is about the session; a command may use the session's name."""
    if isinstance(record, Task):
        return session_of(record.group_id, record.sample, record.attempt) == session_id
    named = getattr(record, "session_id", None)
    return named in (session_id, session_name(session_id))


def _key(topic: Topic, session_id: str) -> str | None:
    return session_name(session_id) if topic in _KEYED_BY_SESSION else None
