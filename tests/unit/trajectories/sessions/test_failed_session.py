"""Sessions at whose events the fold fails: all who fold them go on alike."""

import pytest

from seamlessflow.consumers.trajectories.sessions import fold
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.consumers.trajectories.sessions.session import MANAGER_FAILED, TurnState
from seamlessflow.schemas.records import SessionClosed
from tests.builders.records.content import ids
from tests.builders.records.sessions import (
    closed,
    completed,
    dispatched,
    finalized,
    refused,
    rewarded,
    started,
)
from tests.builders.trajectories.session_builder import SessionBuilder, session_after

UNREADABLE = b'{"tool_calls":['
POISON = completed(ids(7), "a", message=UNREADABLE)
GIVEN_UP: SessionClosed = closed(command_id=None, status="aborted", reason=MANAGER_FAILED)


def failed() -> SessionBuilder:
    return session_after(started(), dispatched(), POISON)


def test_an_event_that_cannot_be_folded_fails_its_session_and_names_the_error() -> None:
    built = session_after(started(), dispatched())

    folded = fold.apply(built.session, POISON, 103, lambda _: "arguments")

    assert (folded.accepted, built.session.failed) == (False, True)
    assert isinstance(folded.error, ValueError)


def test_only_its_end_counts_for_a_failed_session() -> None:
    built = failed().apply(
        started("b"), rewarded(), refused(), closed(), finalized(), GIVEN_UP, GIVEN_UP, finalized()
    )

    assert built.accepted[4:] == [False, False, True, False, False, True, True, True]
    assert built.turn().state is TurnState.CUT


@pytest.mark.parametrize("close", [closed(), closed(command_id=None, reason="idle")])
def test_a_closed_session_can_still_be_given_up(close: SessionClosed) -> None:
    built = session_after(close, close, GIVEN_UP, finalized(), GIVEN_UP)

    assert built.accepted[1:] == [True, False, True, True, False]
    assert built.session.failed and built.session.closed == GIVEN_UP


def test_a_client_that_closes_with_the_reason_of_a_failure_gives_nothing_up() -> None:
    built = session_after(closed(reason=MANAGER_FAILED))

    assert not built.session.failed


def test_an_error_that_must_end_the_process_fails_no_session() -> None:
    built = session_after(started(), dispatched())

    def without_memory(policy: str) -> Strictness:
        raise MemoryError

    with pytest.raises(MemoryError):
        fold.apply(built.session, completed(ids(7), "a"), 103, without_memory)
    assert not built.session.failed
