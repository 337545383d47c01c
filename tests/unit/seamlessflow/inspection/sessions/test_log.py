"""A session of the log is found by id and by name, and folded as the manager folds it."""

from infra.kafka.client import Received
from schemas.records import Record
from schemas.topics import SESSIONS
from seamlessflow.inspection.sessions.log import folded
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
    sessions.opened(session_id="other"),
)


def found(session_id: str, log: list[Received]) -> tuple[str, int, bool] | None:
    """Return id, number of turns, and whether the session is closed."""
    session = folded(session_id, log, lambda _: "arguments")
    if session is None:
        return None
    return session.session_id, len(session.turns), session.closed is not None


def test_a_name_means_the_session_that_was_opened_last() -> None:
    assert found("n", LOG) == (SECOND, 0, False)


def test_an_id_means_that_session_alone() -> None:
    assert found(FIRST, LOG) == (FIRST, 1, True)
    assert found("other", LOG) == ("other", 0, False)


def test_a_session_that_never_was_is_not_found() -> None:
    assert found("nobody", LOG) is None


def test_events_of_a_manager_whose_claim_was_over_do_not_count() -> None:
    late = logged(
        sessions.claimed(1),
        sessions.opened(session_id=FIRST, epoch=1),
        sessions.claimed(2),
        sessions.closed(session_id=FIRST, epoch=1),
        sessions.opened(session_id=SECOND, epoch=1),
    )
    assert found("n", late) == (FIRST, 0, False)
