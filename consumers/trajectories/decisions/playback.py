"""Decisions about an agent's requests while a recorded session is played back to it. Pure.

A request that equals a copied turn's request gets that turn's answer. The request for the chosen
turn is sampled, and so are all later ones. Any other request shows that the agent, or a tool that
really ran again, differs from the recording. Then the prefix is no longer true, so the session
ends.
"""

from collections.abc import Sequence

from seamlessflow.consumers.trajectories.decisions.context import Context, Decision, refuse
from seamlessflow.consumers.trajectories.decisions.turn_start import asked_key, whole_history
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness, message_key
from seamlessflow.consumers.trajectories.sessions.session import Session, Turn
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import PolicyWeights

FORK_DIVERGED = "fork_diverged"
"""Reason for the end of a session whose agent left the recording played back to it."""
_SHOWN = 80


def played_back(
    session: Session, command: r.RequestTurn, policy: PolicyWeights, context: Context
) -> Decision | None:
    """Return a request's decision, or None if it asks for the chosen turn.

    Raises `BadRequest`.
    """
    key = asked_key(session, command, policy)
    asked = [turn for turn in session.turns.values() if turn.started.history_key == key]
    # Several samples for one prompt are played in recorded order.
    left = [turn for turn in asked if not turn.played]
    if not left and session.fork is not None and key == session.fork.history_key:
        return None
    if not asked:
        strictness: Strictness = policy.strictness  # type: ignore[assignment]
        detail = divergence(session, whole_history(session, command), strictness)
        return _diverged(session, command, detail, context)
    return Decision([_event(left[0] if left else asked[-1], command, context)])


def _event(turn: Turn, command: r.RequestTurn, context: Context) -> r.TurnPlayedBack:
    return r.TurnPlayedBack(
        session_id=command.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        command_id=command.command_id,
        turn_id=turn.started.turn_id,
        reply=command.reply,
        idempotency_key=command.idempotency_key,
        retry_count=command.retry_count,
        body_hash=command.body_hash,
        choice=command.choice,
    )


def _diverged(session: Session, command: r.RequestTurn, detail: str, context: Context) -> Decision:
    """Return the session's end, which comes first: a refusal alone would leave it open."""
    closed = r.SessionClosed(
        session_id=session.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        status="aborted",
        reason=FORK_DIVERGED,
        cause="environment",
        await_reward_until_ms=context.now_ms,
    )
    finalized = r.SessionFinalized(
        session_id=session.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        reason=FORK_DIVERGED,
    )
    return Decision([closed, refuse(command, context, 409, FORK_DIVERGED, detail), finalized])


def divergence(session: Session, messages: Sequence[bytes], strictness: Strictness) -> str:
    """Return a sentence: at which turn and message a request leaves the recording, and how."""
    expected = _expected(session)
    shared = [_common(recorded, messages, strictness) for _, recorded in expected]

    def nearness(number: int) -> tuple[int, bool, bool, int]:
        size = len(expected[number][1])
        common = shared[number]
        return common, common == size == len(messages), size > common, -number

    number = max(range(len(expected)), key=nearness)
    (turn_id, recorded) = expected[number]
    common = shared[number]
    where = f"the request is not the recorded one of turn {number + 1} of {len(expected)}"
    if turn_id:
        where += f" ({turn_id})"
    if common == len(recorded) == len(messages):
        return f"{where}: the messages are equal, its tools, policy or template arguments are not"
    return f"{where}: message {common + 1} was {_shown(recorded, common)}, " + (
        f"and is {_shown(messages, common)}"
    )


def _expected(session: Session) -> list[tuple[str, list[bytes]]]:
    """Return the messages of all recorded prompts that may come, each with its turn's id.

    The chosen prompt is the last; it has no id.
    """
    prompts = [
        (turn.copied_from, session.history(turn)[:-1])
        for turn in session.turns.values()
        if turn.forked
    ]
    fork = session.fork
    chosen = () if fork is None else fork.messages
    parent = None if fork is None else session.turns.get(fork.parent_turn or "")
    before = [] if parent is None else session.history(parent)
    return [*prompts, ("", [*before, *chosen])]


def _common(recorded: Sequence[bytes], messages: Sequence[bytes], strictness: Strictness) -> int:
    """Return how many leading messages count as the same."""
    pairs = zip(recorded, messages, strict=False)
    equal = (message_key(a, strictness) == message_key(b, strictness) for a, b in pairs)
    return next(
        (number for number, same in enumerate(equal) if not same),
        min(len(recorded), len(messages)),
    )


def _shown(messages: Sequence[bytes], number: int) -> str:
    if number >= len(messages):
        return "not there"
    text = messages[number].decode(errors="replace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
