"""A session is found by id and by name, folded as the manager folds it, now and in the past."""

import pytest

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.show.observed import (
    ObservedSession,
    OutsideSession,
    observed_at,
)
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import SESSIONS
from tests.builders.records import sessions

FIRST, SECOND = "n~1", "n~2"


def logged(*records: Record) -> list[Received]:
    return [
        Received(SESSIONS.name, 7, offset, 0, "n", (), record)
        for offset, record in enumerate(records)
    ]


LOG = logged(
    sessions.claimed(1),
    sessions.opened(session_id=FIRST),
    sessions.started(session_id=FIRST),
    sessions.opened(session_id=SECOND),
    sessions.closed(session_id=FIRST),
    sessions.opened(session_id="other"),
)


def observed(session_id: str, log: list[Received]) -> ObservedSession:
    made = ObservedSession(session_id, lambda _: "arguments")
    for item in log:
        made.apply(item)
    return made


def overview(made: ObservedSession) -> tuple[str, int, bool] | None:
    """Return id, number of turns, and whether the session is closed."""
    session = made.session
    if session is None:
        return None
    return session.session_id, len(session.turns), session.closed is not None


def test_a_name_means_the_session_that_was_opened_last() -> None:
    assert overview(observed("n", LOG)) == (SECOND, 0, False)


def test_an_id_means_that_session_alone() -> None:
    assert overview(observed(FIRST, LOG)) == (FIRST, 1, True)
    assert overview(observed("other", LOG)) == ("other", 0, False)


def test_a_session_that_never_was_is_not_found() -> None:
    assert overview(observed("nobody", LOG)) is None


def test_events_of_a_manager_whose_claim_was_over_do_not_count() -> None:
    late = logged(
        sessions.claimed(1),
        sessions.opened(session_id=FIRST, epoch=1),
        sessions.claimed(2),
        sessions.closed(session_id=FIRST, epoch=1),
        sessions.opened(session_id=SECOND, epoch=1),
    )
    assert overview(observed("n", late)) == (FIRST, 0, False)


def test_the_place_names_first_and_last_event() -> None:
    assert observed(FIRST, LOG).place == "events from offset 1 to 4 of sessions[7]"


@pytest.mark.parametrize(
    ("asked", "at", "then"),
    [
        (FIRST, 1, (FIRST, 0, False)),
        (FIRST, 2, (FIRST, 1, False)),
        (FIRST, 3, (FIRST, 1, False)),
        (FIRST, 4, (FIRST, 1, True)),
        ("n", 2, (FIRST, 1, False)),
        ("n", 3, (SECOND, 0, False)),
    ],
)
def test_the_past_has_the_event_at_its_offset_and_none_behind_it(
    asked: str, at: int, then: tuple[str, int, bool]
) -> None:
    assert overview(observed_at(LOG, observed(asked, LOG), at)) == then


@pytest.mark.parametrize(("at", "where"), [(0, "before its first"), (5, "behind its last")])
def test_an_offset_outside_of_the_session_is_refused_with_those_it_has(at: int, where: str) -> None:
    with pytest.raises(OutsideSession, match=f"{where} event: .* offset 1 to 4 of sessions"):
        observed_at(LOG, observed(FIRST, LOG), at)
