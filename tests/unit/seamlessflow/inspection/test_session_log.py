from infra.kafka.client import Received
from schemas.records import Record
from schemas.topics import SESSIONS
from seamlessflow.inspection.session_log import events_of
from tests.builders.records import sessions

FIRST, SECOND = "n~1", "n~2"


def logged(*records: Record) -> list[Received]:
    return [
        Received(SESSIONS.name, 0, offset, 0, "n", (), record)
        for offset, record in enumerate(records)
    ]


LOG = logged(
    sessions.opened(session_id=FIRST),
    sessions.started(session_id=FIRST),
    sessions.opened(session_id=SECOND),
    sessions.closed(session_id=FIRST),
    sessions.started(session_id=SECOND),
    sessions.opened(session_id="other"),
)


def offsets(session_id: str) -> list[int]:
    return [item.offset for item in events_of(session_id, LOG)]


def test_a_name_means_the_session_that_was_opened_last() -> None:
    assert offsets("n") == [2, 4]


def test_an_id_means_that_session_alone() -> None:
    assert offsets(FIRST) == [0, 1, 3]
    assert offsets("other") == [5]


def test_a_session_that_never_was_has_no_events() -> None:
    assert offsets("nobody") == []
