"""Replies to gateways that follow from accepted events. Pure; sent in log order."""

from collections.abc import Callable, Iterable
from itertools import chain

from seamlessflow.consumers.trajectories.sessions.fold import Folded
from seamlessflow.consumers.trajectories.sessions.session import (
    MANAGER_FAILED,
    Session,
    Turn,
    TurnState,
)
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, ReplyAddress
from seamlessflow.schemas.tokens import TOKEN_BYTES

_GIVEN_UP = "the session failed inside the trajectory manager; its log has the error"
AddressedReply = tuple[int, Record]
"""Partition of `replies`, and the record for it."""


def replies(event: Record, folded: Folded) -> list[AddressedReply]:
    """Return the replies that follow from an event that is `answered`."""
    if not folded.accepted:
        return _lost(event)
    match event:
        case r.CommandRefused():
            return _to(event.reply, lambda gateway: _refused(gateway, event))
        case r.SessionOpened():
            return _to(
                event.reply, lambda gateway: opening_answer(gateway, event.command_id, event)
            )
        case r.RewardAssigned():
            return _answered(event.reply, event.session_id, event.command_id)
        case r.SessionClosed():
            return _closed(event, folded)
        case r.TurnJoined() | r.TurnPlayedBack():
            return _joined(event, folded)
        case r.TurnProgressed() | r.TurnInterrupted():
            if folded.session is None or folded.turn is None:
                return []
            return _progressed(event, folded.session, folded.turn, folded.turn.waiting)
        case r.TurnCompleted():
            return _completed(event, folded)
        case r.TurnFailed():
            return _failed(folded.turn, event.status, event.reason, event.detail)
        case r.TurnCancelled():
            return _failed(folded.turn, 499, "cancelled", event.reason)
    return []


def answered(folded: Folded) -> bool:
    """Return True if gateways may wait for the event: it counted, or its session failed."""
    return folded.accepted or (folded.session is not None and folded.session.failed)


def opening_answer(gateway: str, command_id: str, opened: r.SessionOpened) -> r.CommandAnswered:
    """Return the answer to a command that opened a session, or to a repeat of that command."""
    return r.CommandAnswered(
        gateway=gateway,
        session_id=opened.session_id,
        command_id=command_id,
        open_until_ms=opened.at_ms + opened.max_age_ms,
    )


def _lost(event: Record) -> list[AddressedReply]:
    """Return the answer to a command whose event a failed session ignored."""
    address: ReplyAddress | None = getattr(event, "reply", None)
    return _to(
        address,
        lambda gateway: r.CommandAnswered(
            gateway=gateway,
            session_id=event.session_id,  # type: ignore[attr-defined]
            command_id=event.command_id,  # type: ignore[attr-defined]
            turn_id=getattr(event, "turn_id", None),
            status=500,
            reason="internal_error",
            detail=_GIVEN_UP,
        ),
    )


def _to(address: ReplyAddress | None, record: Callable[[str], Record]) -> list[AddressedReply]:
    return [] if address is None else _to_all([address], record)


def _to_all(
    addresses: Iterable[ReplyAddress], record: Callable[[str], Record]
) -> list[AddressedReply]:
    return [(address.partition, record(address.gateway)) for address in addresses]


def _answered(
    address: ReplyAddress | None, session_id: str, command_id: str
) -> list[AddressedReply]:
    return _to(
        address,
        lambda gateway: r.CommandAnswered(
            gateway=gateway, session_id=session_id, command_id=command_id
        ),
    )


def _refused(gateway: str, event: r.CommandRefused) -> Record:
    return r.CommandAnswered(
        gateway=gateway,
        session_id=event.session_id,
        command_id=event.command_id,
        turn_id=event.turn_id,
        status=event.status,
        reason=event.reason,
        detail=event.detail,
    )


def _closed(event: r.SessionClosed, folded: Folded) -> list[AddressedReply]:
    failed = event.reason == MANAGER_FAILED and event.command_id is None
    ending = (500, "internal_error", _GIVEN_UP) if failed else (409, "session_closed", "")
    cut = [reply for turn in folded.cut for reply in _failed(turn, *ending)]
    if event.command_id is None:
        return cut
    return [*cut, *_answered(event.reply, event.session_id, event.command_id)]


def _joined(event: r.TurnJoined | r.TurnPlayedBack, folded: Folded) -> list[AddressedReply]:
    turn = folded.turn
    session = folded.session
    if turn is not None and turn.state not in (TurnState.RUNNING, TurnState.COMPLETED):
        return _too_late(event, turn)  # ended between decision and this event
    answer = _to(
        event.reply,
        lambda gateway: r.CommandAnswered(
            gateway=gateway,
            session_id=event.session_id,
            command_id=event.command_id,
            turn_id=event.turn_id,
        ),
    )
    if turn is None or session is None or event.reply is None:
        return answer
    if turn.state is TurnState.COMPLETED:
        return [*answer, *_finished(session, turn, [event.reply], 0, None)]
    # The retry needs the answer from its first token.
    before = (_progressed(earlier, session, turn, [event.reply]) for earlier in turn.progress)
    return [*answer, *chain.from_iterable(before)]


def _too_late(event: r.TurnJoined | r.TurnPlayedBack, turn: Turn) -> list[AddressedReply]:
    return _to(
        event.reply,
        lambda gateway: r.CommandAnswered(
            gateway=gateway,
            session_id=event.session_id,
            command_id=event.command_id,
            turn_id=event.turn_id,
            status=503,
            reason="turn_ended",
            detail=f"the turn that the retry asks for is {turn.state}",
        ),
    )


def _progressed(
    event: r.TurnProgressed | r.TurnInterrupted,
    session: Session,
    turn: Turn,
    waiting: Iterable[ReplyAddress],
) -> list[AddressedReply]:
    """Return replies, also for empty progress: they show the gateway that a worker has the turn."""
    if not turn.started.stream:
        return []
    wanted = turn.started.wants_logprobs
    begins = bool(event.token_ids) and not event.token_offset
    return _to_all(
        waiting,
        lambda gateway: r.ReplyDelta(
            gateway=gateway,
            session_id=event.session_id,
            turn_id=event.turn_id,
            token_offset=event.token_offset,
            token_count=len(event.token_ids) // TOKEN_BYTES,
            delta=event.delta,
            token_ids=event.token_ids if _wants_ids(turn) else None,
            logprobs=event.logprobs if wanted else None,
            prompt_tokens=turn.started.prompt_length,
            tensors=event.tensors if wanted else (),
            prompt_ids=_prompt_ids(session, turn) if begins else None,
        ),
    )


def _wants_ids(turn: Turn) -> bool:
    """Return whether the client asked for its answer's token ids, with or without log-probs."""
    return turn.started.wants_logprobs or turn.started.wants_token_ids


def _prompt_ids(session: Session, turn: Turn) -> bytes | None:
    """Return the whole prompt if the client asked for token ids, or None."""
    if not turn.started.wants_token_ids:
        return None
    return session.tree.path(turn.prompt_node, session.tree.nodes[turn.prompt_node].length)


def _completed(event: r.TurnCompleted, folded: Folded) -> list[AddressedReply]:
    if folded.turn is None or folded.session is None:
        return []
    waiting = folded.turn.waiting
    return _finished(folded.session, folded.turn, waiting, event.token_offset, event.delta)


def _finished(
    session: Session,
    turn: Turn,
    waiting: Iterable[ReplyAddress],
    offset: int,
    delta: bytes | None,
) -> list[AddressedReply]:
    node = session.tree.nodes[turn.node]
    wanted = turn.started.wants_logprobs
    return _to_all(
        waiting,
        lambda gateway: r.ReplyFinished(
            gateway=gateway,
            session_id=session.session_id,
            turn_id=turn.started.turn_id,
            token_offset=offset,
            delta=delta,
            message=turn.message,
            finish_reason=turn.finish_reason,
            stop_sequence=turn.stop_sequence,
            prompt_tokens=turn.started.prompt_length,
            completion_tokens=node.length,
            reasoning_tokens=turn.reasoning_tokens,
            token_ids=bytes(node.ids) if _wants_ids(turn) else None,
            logprobs=bytes(node.logprobs) if wanted else None,
            tensors=tuple(turn.tensors.values()) if wanted else (),
            version=max((span.version_max for span in node.spans), default=None),
            prompt_ids=_prompt_ids(session, turn),
        ),
    )


def _failed(turn: Turn | None, status: int, reason: str, detail: str) -> list[AddressedReply]:
    if turn is None:
        return []
    started = turn.started
    return _to_all(
        turn.waiting,
        lambda gateway: r.ReplyFinished(
            gateway=gateway,
            session_id=started.session_id,
            turn_id=started.turn_id,
            status=status,
            reason=reason,
            detail=detail,
        ),
    )
