"""The fold: applies an event from `sessions` to its session, and changes nothing else.

Deterministic and idempotent: the same log gives the same sessions, and a repeated event counts
once. An event out of order is counted in `Session.ignored`. It has no other effect, with two
exceptions. A dispatch that comes too late ends the dispatch before it. A cancellation that comes
too late shows that its client left without the answer.

If the rules raise an error for an event, its session fails in every process that folds it. From
then on only the session's end counts, and the partition's owner appends that end.
"""

from collections.abc import Callable
from typing import NamedTuple

from seamlessflow.consumers.trajectories.sessions.calls import close_hash, reward_hash
from seamlessflow.consumers.trajectories.sessions.forks import copy_fork, play_back
from seamlessflow.consumers.trajectories.sessions.message_keys import (
    Strictness,
    chained,
    message_key,
)
from seamlessflow.consumers.trajectories.sessions.session import (
    MANAGER_FAILED,
    Output,
    Session,
    Turn,
    TurnState,
)
from seamlessflow.consumers.trajectories.sessions.tree import add_spans, appended
from seamlessflow.infra.errors import ENDS_PROCESS
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, Reward
from seamlessflow.schemas.tokens import POLICY, TOKEN_BYTES

FOLD_VERSION = 2
"""Version of the rules that merge new sessions; docs/manager/rules.md describes each version.

A session keeps the version in its `SessionOpened` for ever, so rules are added and never edited.
"""
FOLDED_SINCE = "0.1.0"
"""First release whose managers know these rules; a manager cannot write for an older one."""
PROMPT_TOO_LONG, TURN_LIMIT = "prompt_too_long", "turn_limit"
"""Reasons for refusing calls that do not fit into the context, or into the session's turns."""
_LIMITS = {PROMPT_TOO_LONG: "context", TURN_LIMIT: "turns"}
_ENDS = r.SessionClosed | r.SessionFinalized | r.CommandRefused


class Folded(NamedTuple):
    """The session after an event, whether the event was accepted, and the turn it concerns."""

    session: Session | None
    accepted: bool
    turn: Turn | None = None
    cut: tuple[Turn, ...] = ()
    """Turns that were running when the event, a `SessionClosed`, ended them."""
    error: Exception | None = None
    """Error with which the event failed the session; the event was not accepted."""


def apply(
    session: Session | None, event: Record, offset: int, strictness: Callable[[str], Strictness]
) -> Folded:
    """Apply `event`, which has this `offset` in the session's partition. Changes `session`.

    `strictness(policy)`: how later histories are compared with messages that the policy sampled.
    """
    begins = session is None
    if session is None:
        if not isinstance(event, r.SessionOpened):
            return Folded(None, isinstance(event, r.CommandRefused))
        session = Session(event, offset, last_activity_ms=event.at_ms)
    try:
        folded = (_open if begins else _transition)(session, event, offset, strictness)
    except ENDS_PROCESS:
        raise
    except Exception as error:
        session.failed = True
        folded = Folded(session, False, error=error)
    if not folded.accepted and not isinstance(event, r.CommandRefused):
        session.ignored[_reason(session, event)] += 1
    return folded


def _open(session: Session, _: Record, __: int, strictness: Callable[[str], Strictness]) -> Folded:
    session.commands.add(session.opened.command_id)
    if session.opened.fork is not None:
        copy_fork(session, session.opened.fork, strictness)
    return Folded(session, True)


def _transition(
    session: Session, event: Record, offset: int, strictness: Callable[[str], Strictness]
) -> Folded:
    if session.failed and not isinstance(event, _ENDS):
        return Folded(session, False)
    match event:
        case r.TurnStarted():
            return _start(session, event, offset)
        case r.TurnDispatched():
            return _dispatch(session, event)
        case r.TurnProgressed() | r.TurnInterrupted() | r.TurnCompleted():
            return _output(session, event, strictness)
        case r.TurnFailed():
            return _fail(session, event)
        case r.TurnCancelled():
            return _cancel(session, event)
        case r.TurnUndelivered():
            return _leave(session, event)
        case r.TurnJoined():
            return _join(session, event)
        case r.TurnPlayedBack():
            turn = play_back(session, event)
            return Folded(session, turn is not None, turn)
        case r.RewardAssigned():
            return _reward(session, event)
        case r.SessionClosed():
            return _close(session, event)
        case r.SessionFinalized():
            return _finalize(session, event, offset)
        case r.CommandRefused():
            session.commands.add(event.command_id)
            session.limit = _LIMITS.get(event.reason, session.limit)
            return Folded(session, True)
    return Folded(session, False)


def _start(session: Session, event: r.TurnStarted, offset: int) -> Folded:
    tree = session.tree
    turn_id = event.turn_id
    late = session.closed is not None or turn_id in session.turns
    if late or not tree.holds(event.parent_node, event.parent_end):
        return Folded(session, False)
    # Two nodes for each turn: the tokens that the prompt adds, and behind them the sampled ones.
    prompt = tree.grow(event.parent_node, event.parent_end, event.suffix_origin, turn_id, offset)
    prompt.ids += event.suffix_ids
    sampled = tree.grow(prompt.node_id, prompt.length, POLICY, turn_id, offset)
    waiting = [] if event.reply is None else [event.reply]
    turn = Turn(event, prompt.node_id, sampled.node_id, waiting, event.at_ms)
    session.turns[turn_id] = session.running[turn_id] = turn
    session.commands.add(event.command_id)
    session.last_activity_ms = event.at_ms
    if event.idempotency_key is not None:
        session.idempotency[event.idempotency_key, event.choice] = turn_id
    return Folded(session, True, turn)


def _dispatch(session: Session, event: r.TurnDispatched) -> Folded:
    turn = session.running.get(event.turn_id)
    if turn is None or event.dispatch != turn.dispatch + 1:
        return Folded(session, False, turn)
    if event.from_offset != session.tree.nodes[turn.node].length:
        # Output was appended in between. The worker may sample all the same, so the number is used
        # up. A later dispatch with the same number would accept that output as its own.
        turn.dispatch = event.dispatch
        turn.worker = None
        return Folded(session, False, turn)
    if turn.dispatch:
        turn.interruptions += 1
    turn.dispatch = event.dispatch
    turn.worker = event.worker
    turn.incarnation = event.incarnation
    turn.slot = event.slot
    turn.no_progress_ms = event.no_progress_ms
    turn.last_progress_ms = event.at_ms
    return Folded(session, True, turn)


def _output(session: Session, event: Output, strictness: Callable[[str], Strictness]) -> Folded:
    turn = session.running.get(event.turn_id)
    if turn is None or not turn.sampled_by(event):
        return Folded(session, False, turn)
    node = session.tree.nodes[turn.node]
    size = len(event.token_ids)
    if event.token_offset != node.length or size != len(event.logprobs) or size % TOKEN_BYTES:
        return Folded(session, False, turn)
    node.ids += event.token_ids
    node.logprobs += event.logprobs
    add_spans(node.spans, event.spans)
    for tensor in event.tensors:
        turn.tensors[tensor.name] = appended(turn.tensors.get(tensor.name), tensor)
    turn.last_progress_ms = session.last_activity_ms = event.at_ms
    # A retry that joins the running turn gets its output so far; once completed, all its output.
    if turn.started.stream and event.token_ids and not isinstance(event, r.TurnCompleted):
        turn.progress.append(event)
    if isinstance(event, r.TurnInterrupted):
        turn.worker = None
    if isinstance(event, r.TurnCompleted):
        _complete(session, turn, event, strictness(turn.started.policy))
    elif event.token_ids:  # a turn handed back before it began has no state
        turn.control_state = event.control_state
    return Folded(session, True, turn)


def _complete(session: Session, turn: Turn, event: r.TurnCompleted, strictness: Strictness) -> None:
    started = turn.started
    turn.finish_reason = event.finish_reason
    turn.message = event.message
    turn.stop_sequence = event.stop_sequence
    turn.reasoning_tokens = event.reasoning_tokens
    turn.control = event.control
    turn.control_at = event.control_at
    turn.prompt_confirmed = (
        event.prompt_hash == started.prompt_hash and event.prompt_length == started.prompt_length
    )
    session.limit = turn.limit_at(session.tree.nodes[turn.node].length)
    if event.control_ends == "session" and not turn.exempt:
        session.ended_by = session.ended_by or event.turn_id
    end = chained(started.history_key, message_key(event.message, strictness))
    session.ends.setdefault(end, []).append(event.turn_id)
    _end(session, turn, TurnState.COMPLETED)


def _fail(session: Session, event: r.TurnFailed) -> Folded:
    turn = session.running.get(event.turn_id)
    if turn is None:
        return Folded(session, False)
    if event.epoch is None and not turn.sampled_by(event):
        return Folded(session, False, turn)
    if event.reason == PROMPT_TOO_LONG:
        session.limit = "context"
    _end(session, turn, TurnState.FAILED)
    return Folded(session, True, turn)


def _cancel(session: Session, event: r.TurnCancelled) -> Folded:
    turn = session.running.get(event.turn_id)
    if turn is None:
        _mark_undelivered(session, event)
    # The command counts as carried out, even if the turn has ended meanwhile.
    if event.command_id is not None:
        session.commands.add(event.command_id)
    if turn is None:
        return Folded(session, False)
    _end(session, turn, TurnState.CANCELLED)
    return Folded(session, True, turn)


def _leave(session: Session, event: r.TurnUndelivered) -> Folded:
    marked = _mark_undelivered(session, event)
    session.commands.add(event.command_id)
    return Folded(session, marked, session.turns.get(event.turn_id))


def _mark_undelivered(session: Session, event: r.TurnUndelivered | r.TurnCancelled) -> bool:
    """Mark a completed turn whose client left; return True if the event counts."""
    turn = session.turns.get(event.turn_id)
    if turn is None or turn.state is not TurnState.COMPLETED:
        return False
    if event.command_id in session.commands or session.finalized_at_ms is not None:
        return False
    turn.undelivered = True
    return True


def _join(session: Session, event: r.TurnJoined) -> Folded:
    turn = session.turns.get(event.turn_id)
    if turn is None or event.command_id in session.commands:
        return Folded(session, False, turn)
    session.commands.add(event.command_id)
    turn.undelivered = False
    if event.reply is not None:
        turn.waiting = [reply for reply in turn.waiting if reply != event.reply] + [event.reply]
    return Folded(session, True, turn)


def _reward(session: Session, event: r.RewardAssigned) -> Folded:
    if session.finalized_at_ms is not None or event.command_id in session.commands:
        return Folded(session, False)
    session.commands.add(event.command_id)
    if event.failure:
        session.judge_failures[event.reward.name] = event.failure
        return Folded(session, True)
    key = judgement(event.reward)
    before = session.rewards.get(key)
    if before is None or event.reward.revision >= before.revision:
        session.rewards[key] = event.reward
    session.rewards_final |= event.final
    if event.idempotency_key is not None:
        session.keyed_calls.add(reward_hash(event.reward, event.idempotency_key))
    session.last_activity_ms = event.at_ms
    return Folded(session, True)


def _close(session: Session, event: r.SessionClosed) -> Folded:
    given_up = event.command_id is None and event.reason == MANAGER_FAILED
    over = session.closed is not None and (not given_up or session.finalized_at_ms is not None)
    if over or (session.failed and not given_up):
        return Folded(session, False)
    session.failed |= given_up
    if event.command_id is not None:
        session.commands.add(event.command_id)
    if event.idempotency_key is not None and event.call_hash is not None:
        session.keyed_calls.add(close_hash(event.call_hash, event.idempotency_key))
    cut = tuple(session.running.values())
    for turn in cut:
        _end(session, turn, TurnState.CUT)
    session.closed = event
    return Folded(session, True, cut=cut)


def _finalize(session: Session, event: r.SessionFinalized, offset: int) -> Folded:
    if session.closed is None or session.finalized_at_ms is not None:
        return Folded(session, False)
    session.finalized_at_ms = event.at_ms
    session.last_offset = offset
    return Folded(session, True)


def judgement(reward: Reward) -> tuple[str, str, str | None]:
    """Return what a reward judges; a later reward for the same replaces it."""
    return reward.name, reward.scope, reward.turn_id


def _end(session: Session, turn: Turn, state: TurnState) -> None:
    turn.state = state
    turn.progress.clear()
    turn.control_state = None
    del session.running[turn.started.turn_id]


def _reason(session: Session, event: Record) -> str:
    if session.finalized_at_ms is not None:
        return "after_finalized"
    return f"{type(event).__name__}_out_of_order"
