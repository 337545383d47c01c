"""Records of a session and of training, as `seamlessflow trace` reads them from the log."""

from typing import NamedTuple

from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.show.log import UnknownSession
from seamlessflow.recorded.show.records import session_records
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.records import SessionOpened
from seamlessflow.schemas.topics import CONTROL, SESSIONS


class SessionHistory(NamedTuple):
    """Everything that a waterfall is made from."""

    session_id: str
    records: list[Received]
    control: list[Received]


def load_history(settings: KafkaSettings, session: str, skipped: Skipped) -> SessionHistory:
    """Read the records of a session, by id or by name (the latest). Raises `UnknownSession`."""
    events = list(read_topic(settings, SESSIONS, Skipped(), session_name(session)))
    opened = [item.record for item in events if isinstance(item.record, SessionOpened)]
    named = [
        event.session_id
        for event in opened
        if session in (event.session_id, session_name(event.session_id))
    ]
    session_id = named[-1] if named else session
    records = session_records(settings, session_id, skipped)
    if not records:
        raise UnknownSession(session, len(events))
    return SessionHistory(session_id, records, list(read_topic(settings, CONTROL, skipped)))
