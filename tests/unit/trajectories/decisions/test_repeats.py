"""Session calls that clients repeat because their answers were lost."""

from dataclasses import replace

import pytest

from seamlessflow.consumers.trajectories.decisions.context import Decision
from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.consumers.trajectories.sessions.ended import EndedSessions, kept_of
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import SessionCommand
from tests.builders.records.commands import assign_reward, close_session, open_session
from tests.builders.records.content import ids
from tests.builders.records.sessions import completed, dispatched, finalized, opened, started
from tests.builders.trajectories.decisions import context, kinds
from tests.builders.trajectories.session_builder import SessionBuilder

OPEN = open_session(idempotency_key="k1", metadata={"b": "1", "a": "2"})
REWARD = assign_reward(r.Reward(value=0.5), idempotency_key="k2")
CLOSE = close_session(idempotency_key="k3", await_reward_ms=9_000)
CUT = completed(ids(9), finish_reason="length")


def carried_out(*commands: SessionCommand) -> SessionBuilder:
    """Return the session that these commands make."""
    built = SessionBuilder()
    session: Session | None = None
    for number, command in enumerate(commands):
        first = replace(command, command_id=f"first-{number}")
        built.apply(*decide(session, first, context()).events)
        session = built.session
    return built


def ended(*commands: SessionCommand) -> EndedSessions:
    """Return what is kept of the session that these commands make, once it is finalized."""
    built = carried_out(*commands)
    if built.session.finalized_at_ms is None:
        built.apply(finalized())
    kept = EndedSessions()
    kept.add(kept_of(built.session))
    return kept


def answered(decision: Decision, command: SessionCommand) -> bool:
    """Return True if the command was only answered, with status 200."""
    answer = decision.answer
    assert answer is None or (answer.status, answer.command_id) == (200, command.command_id)
    return answer is not None and not decision.events


def refusal(decision: Decision) -> tuple[int, str]:
    """Return status and reason of a decision that only refuses."""
    (refused,) = decision.events
    assert isinstance(refused, r.CommandRefused)
    return refused.status, refused.reason


@pytest.mark.parametrize("before", [(OPEN,), (OPEN, CLOSE)])
def test_an_opening_repeated_with_its_key_is_answered(before: tuple[SessionCommand, ...]) -> None:
    session = carried_out(*before).session

    assert answered(decide(session, OPEN, context()), OPEN)


@pytest.mark.parametrize(
    "other",
    [
        replace(OPEN, idempotency_key="other"),
        replace(OPEN, idempotency_key=None),
        replace(OPEN, sample=1),
    ],
)
def test_an_id_is_not_opened_under_another_key_or_none_or_with_other_fields(
    other: r.OpenSession,
) -> None:
    situation = context(ended=ended(OPEN, CLOSE, REWARD), used=lambda _: True)
    decision = decide(carried_out(OPEN).session, other, context())

    assert refusal(decide(None, other, situation)) == (409, "session_exists")
    reused = other.idempotency_key == OPEN.idempotency_key
    assert refusal(decision) == (
        (422, "idempotency_key_reused") if reused else (409, "session_exists")
    )


def test_an_opening_without_a_key_is_never_a_repeat() -> None:
    without = replace(OPEN, idempotency_key=None)

    decision = decide(carried_out(without).session, without, context())

    assert kinds(decision.events) == ["CommandRefused"]


def test_a_reward_repeated_with_its_key_is_assigned_once() -> None:
    later = assign_reward(r.Reward(value=0.9), idempotency_key="k4")
    session = carried_out(OPEN, REWARD, later).session

    assert answered(decide(session, REWARD, context()), REWARD)
    assert [reward.value for reward in session.rewards.values()] == [0.9]


def test_a_reward_without_a_key_corrects_the_one_before() -> None:
    first, second = (assign_reward(r.Reward(value=value)) for value in (0.5, 0.9))
    session = carried_out(OPEN, first, second).session

    assert kinds(decide(session, first, context()).events) == ["RewardAssigned"]


def test_a_close_is_repeated_but_not_changed() -> None:
    session = carried_out(OPEN, CLOSE).session

    assert answered(decide(session, CLOSE, context()), CLOSE)
    other, changed = replace(CLOSE, idempotency_key="other"), replace(CLOSE, status="aborted")
    assert refusal(decide(session, other, context())) == (409, "session_closed")
    assert refusal(decide(session, changed, context())) == (422, "idempotency_key_reused")


@pytest.mark.parametrize("key", ["k", None])
@pytest.mark.parametrize("on_limit", ["zero", "retry"])
def test_a_close_is_repeated_although_the_manager_knew_another_cause(
    key: str | None, on_limit: str
) -> None:
    close = replace(CLOSE, idempotency_key=key, on_limit=on_limit)
    cut = SessionBuilder().apply(opened(), started(), dispatched(), CUT)
    cut.apply(*decide(cut.session, replace(close, command_id="first"), context()).events)
    assert cut.session.closed is not None
    asked = close.status, close.cause
    assert (cut.session.closed.status, cut.session.closed.cause) != asked

    assert answered(decide(cut.session, close, context()), close)
    kept = EndedSessions()
    kept.add(kept_of(cut.apply(finalized()).session))
    assert answered(decide(None, close, context(ended=kept, used=lambda _: True)), close)


@pytest.mark.parametrize("key", ["k", None])
def test_each_call_of_a_finalized_session_may_be_repeated_and_no_other(key: str | None) -> None:
    reward, close = replace(REWARD, idempotency_key=key), replace(CLOSE, idempotency_key=key)
    situation = context(ended=ended(OPEN, close, reward), used=lambda _: True)

    for repeat in (OPEN, reward, close):
        assert answered(decide(None, repeat, situation), repeat)
    for other in (
        assign_reward(r.Reward(value=0.6), idempotency_key=key),
        replace(reward, session_id="other"),
        replace(close, reason="other"),
    ):
        assert kinds(decide(None, other, situation).events) == ["CommandRefused"]


def test_a_session_that_the_manager_closed_was_closed_by_no_call() -> None:
    built = SessionBuilder().apply(opened(max_idle_ms=0))
    idle = r.SessionClosed(
        session_id="s",
        epoch=1,
        at_ms=5,
        status="complete",
        reason="",
        cause="policy",
        await_reward_until_ms=5,
    )
    built.apply(idle)

    assert kinds(decide(built.session, close_session(), context()).events) == ["CommandRefused"]
