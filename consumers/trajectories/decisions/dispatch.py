"""Dispatches of turns to workers: first dispatches, further ones, repeats and stops. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from seamlessflow.consumers.trajectories.decisions.context import Context, Decision
from seamlessflow.consumers.trajectories.decisions.fleet import Needs, RoutableWorker
from seamlessflow.consumers.trajectories.sessions.session import Session, Turn
from seamlessflow.infra.worker.tags import Wishes, wishes_of
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, TurnStarted
from seamlessflow.schemas.tokens import TOKEN_BYTES


class _Sampled(NamedTuple):
    """A turn's accepted tokens so far, and its rule's state behind them."""

    ids: bytes
    control_state: bytes | None


_NOTHING = _Sampled(b"", None)


def first(session: Session, started: TurnStarted, prompt: bytes, context: Context) -> Decision:
    """Return a turn's first dispatch, or an empty decision if no worker can take it now."""
    # The parent's worker has the beginning of this prompt in its KV cache.
    parent = session.turns.get(started.parent_turn or "")
    affinity = parent.worker if parent is not None else None
    worker = context.fleet.choose(_needs(session, started), affinity)
    if worker is None:
        return Decision()
    return _dispatch_to(worker, session, started, 1, "first", prompt, _NOTHING, context)


def again(session: Session, turn: Turn, reason: str, context: Context) -> Decision:
    """Return a turn's next dispatch, behind the tokens accepted so far.

    Empty if no worker can take the turn now.
    """
    started = turn.started
    hangs = reason == "no_progress"
    avoided = turn.worker if hangs else None
    worker = context.fleet.choose(_needs(session, started), None, avoided)
    if worker is None:
        return Decision()
    # Only a worker that seems to hang still samples; otherwise it has stopped or is lost.
    stopped = stop(session, [turn], reason, context) if hangs else []
    sampled = _sampled(session, turn)
    number = turn.dispatch + 1
    prompt = _prompt(session, turn)
    if number == 1:  # no worker could take the turn when it started
        reason = "first"
    decision = _dispatch_to(worker, session, started, number, reason, prompt, sampled, context)
    return Decision(decision.events, [*stopped, *decision.prompts])


def repeated(session: Session, turn: Turn, context: Context) -> list[tuple[int, Record]]:
    """Return the prompt of the turn's current dispatch again, in case it was never sent."""
    if turn.worker is None or not context.fleet.routable(turn.worker, turn.incarnation):
        return []
    worker = context.fleet.workers[turn.worker]
    sampled = _sampled(session, turn)
    generate = _generate(
        worker, session, turn.started, turn.dispatch, _prompt(session, turn), sampled, context
    )
    return [(worker.slot, generate)]


def stop(
    session: Session, turns: Iterable[Turn], reason: str, context: Context
) -> list[tuple[int, Record]]:
    """Return the records that make workers stop sampling these turns."""
    return [
        (
            turn.slot,
            r.CancelGeneration(
                session_id=session.session_id,
                turn_id=turn.started.turn_id,
                dispatch=turn.dispatch,
                epoch=context.epoch,
                worker=turn.worker,
                incarnation=turn.incarnation,
                reason=reason,
            ),
        )
        for turn in turns
        if turn.worker is not None
    ]


def _pinned(session: Session, started: TurnStarted) -> int | None:
    """Return the pinned version, or None for a turn whose policy is not the session's."""
    return session.opened.pinned_version if started.policy == session.opened.policy else None


def _needs(session: Session, started: TurnStarted) -> Needs:
    """Return what a worker must have for the turn.

    A group is admitted under the weights that were published when its sessions were opened. Older
    weights would make tokens that are too stale when the group is trained.
    """
    pinned = _pinned(session, started)
    opened = session.opened
    of_session = started.policy == opened.policy and pinned is None
    oldest = opened.creation_version if of_session else None
    return Needs(started.policy, pinned, oldest, wishes_of(started.tags))


def _why(reason: str, worker: RoutableWorker, wishes: Wishes) -> str:
    """Return a dispatch's reason, with the turn's wishes and whether the worker meets them."""
    if not wishes:
        return reason
    spilled = not worker.tags >= wishes.prefers
    return f"{reason}, spilled over from {wishes}" if spilled else f"{reason}, to {wishes}"


def _sampled(session: Session, turn: Turn) -> _Sampled:
    return _Sampled(bytes(session.tree.nodes[turn.node].ids), turn.control_state)


def _prompt(session: Session, turn: Turn) -> bytes:
    node = session.tree.nodes[turn.prompt_node]
    return session.tree.path(node.node_id, node.length)


def _dispatch_to(
    worker: RoutableWorker,
    session: Session,
    started: TurnStarted,
    number: int,
    reason: str,
    prompt: bytes,
    sampled: _Sampled,
    context: Context,
) -> Decision:
    event = r.TurnDispatched(
        session_id=session.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        turn_id=started.turn_id,
        dispatch=number,
        from_offset=len(sampled.ids) // TOKEN_BYTES,
        worker=worker.worker,
        incarnation=worker.incarnation,
        slot=worker.slot,
        reason=_why(reason, worker, wishes_of(started.tags)),
        no_progress_ms=context.no_progress_ms,
    )
    generate = _generate(worker, session, started, number, prompt, sampled, context)
    return Decision([event], [(worker.slot, generate)])


def _generate(
    worker: RoutableWorker,
    session: Session,
    started: TurnStarted,
    number: int,
    prompt: bytes,
    sampled: _Sampled,
    context: Context,
) -> r.GenerateTurn:
    return r.GenerateTurn(
        session_id=session.session_id,
        turn_id=started.turn_id,
        dispatch=number,
        epoch=context.epoch,
        partition=context.partition,
        worker=worker.worker,
        incarnation=worker.incarnation,
        prompt_ids=prompt,
        prompt_hash=started.prompt_hash,
        completion_ids=sampled.ids,
        sampling=started.sampling_effective,
        tools=started.tools,
        stream=started.stream,
        policy=started.policy,
        adapter=started.adapter,
        pinned_version=_pinned(session, started),
        deadline_ms=started.deadline_ms,
        choice=started.choice,
        raw=started.raw,
        prefill=started.prefill,
        computed=started.prompt_length - len(started.suffix_ids) // TOKEN_BYTES,
        min_version=_needs(session, started).min_version,
        control=started.control,
        control_state=sampled.control_state,
        seed=started.seed,
    )
