"""Decisions about commands: the events to append and the prompts to send. Pure.

Each command leads to at least one event, for example `CommandRefused`. There are two exceptions:

- a command that was carried out before, or that repeats such a command
- a `CancelTurn` that comes too late, or from a gateway whose client a retry replaced

`Actor` makes sure that the session has applied the events of all earlier commands.
"""

from collections.abc import Mapping
from dataclasses import replace

from seamlessflow.consumers.trajectories.decisions import dispatch, repeats
from seamlessflow.consumers.trajectories.decisions.context import (
    LARGEST_EVENT_BYTES,
    Context,
    Decision,
    refuse,
)
from seamlessflow.consumers.trajectories.decisions.endings import (
    awaited_rewards,
    close,
    ending,
    finalized,
    ruled,
)
from seamlessflow.consumers.trajectories.decisions.forks import FORK_REFUSED, fork_problem
from seamlessflow.consumers.trajectories.decisions.playback import played_back
from seamlessflow.consumers.trajectories.decisions.turn_start import BadRequest, record_bytes, start
from seamlessflow.consumers.trajectories.sessions.calls import asked_hash
from seamlessflow.consumers.trajectories.sessions.fold import (
    FOLD_VERSION,
    PROMPT_TOO_LONG,
    TURN_LIMIT,
    judgement,
)
from seamlessflow.consumers.trajectories.sessions.session import Session, Turn, TurnState
from seamlessflow.infra.worker.judged_rewards import JUDGE_FAILED
from seamlessflow.infra.worker.tags import wishes_of
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import named_session_id
from seamlessflow.schemas.topics import SessionCommand


def decide(session: Session | None, command: SessionCommand, context: Context) -> Decision:
    """Return a command's decision; it is empty if the command was carried out before."""
    if session is not None and command.command_id in session.commands:
        return Decision()
    if command.expires_at_ms <= context.now_ms:
        return Decision([refuse(command, context, 504, "expired", "the command waited too long")])
    changed = repeats.changed_by(session, command, context)
    if changed is not None:
        return Decision(answer=repeats.answer(changed, command, session))
    terms = command.terms if isinstance(command, r.RequestTurn) else None
    if terms is not None and (session is None or session.closed):
        return _begin(command, terms, context)
    refusal = _refusal(session, command, context)
    if refusal is not None:
        return Decision([refusal])
    if isinstance(command, r.OpenSession):
        return _open(command, context)
    if session is None:
        return Decision()
    if command.session_id != session.session_id:  # a name that addresses this session
        command = replace(command, session_id=session.session_id)
    match command:
        case r.RequestTurn():
            return _request(session, command, context)
        case r.CancelTurn():
            return _cancel(session, command, context)
        case r.AssignReward():
            return _assign_reward(session, command, context)
        case r.CloseSession():
            return _close(session, command, context)


def _refusal(
    session: Session | None, command: SessionCommand, context: Context
) -> r.CommandRefused | None:
    if session is not None and (key := repeats.reused_key(session, command)) is not None:
        detail = f"another call has the idempotency key {key!r}"
        return refuse(command, context, 422, "idempotency_key_reused", detail)
    if isinstance(command, r.OpenSession):
        if session is not None or context.used(command.session_id):
            return refuse(command, context, 409, "session_exists", "session ids are never reused")
        return _unknown_policy(command, command.policy, command.policies, context)
    if session is None:
        if context.used(command.session_id):
            return _too_late(command, context.fates.why_pruned(command.session_id), context)
        return refuse(command, context, 404, "unknown_session", f"no session {command.session_id}")
    if isinstance(command, r.AssignReward):
        return _reward_refusal(session, command, context)
    # Closing has ended all turns, so a later cancel is no error and decides nothing.
    if session.closed and not isinstance(command, r.CancelTurn):
        return refuse(command, context, 409, "session_closed", session.closed.reason)
    if session.ended_by and isinstance(command, r.RequestTurn):  # it is about to be closed
        reason = session.turns[session.ended_by].control
        return refuse(command, context, 409, "session_closed", reason)
    return None


def _unknown_policy(
    command: SessionCommand, policy: str, policies: Mapping[str, str], context: Context
) -> r.CommandRefused | None:
    for name in (policy, *policies.values()):
        if name not in context.fleet.policies:
            return refuse(command, context, 503, "unknown_policy", f"no weights of policy {name!r}")
    return None


def _too_late(command: SessionCommand, why: str, context: Context) -> r.CommandRefused:
    """Return the refusal for a call to a finalized session; `why` it was pruned, or empty.

    A pruned session's agent may not know that it has ended, so its reward is no mistake.
    """
    late_reward = bool(why) and isinstance(command, r.AssignReward)
    code = "session_pruned" if late_reward else "session_closed"
    detail = f"the session is finalized: {why}" if why else "the session is finalized"
    return refuse(command, context, 409, code, detail)


def _reward_refusal(
    session: Session, command: r.AssignReward, context: Context
) -> r.CommandRefused | None:
    if session.finalized_at_ms is not None:
        ended = session.closed
        pruned = ended is not None and ended.status == "pruned"
        return _too_late(command, ended.reason if ended and pruned else "", context)
    turn_id = command.reward.turn_id
    if turn_id is not None and turn_id not in session.turns:
        return refuse(command, context, 404, "unknown_turn", f"no turn {turn_id}")
    return None


def _begin(command: SessionCommand, terms: r.SessionTerms, context: Context) -> Decision:
    """Open a session with the requested name. The request is decided once it is open."""
    refusal = _unknown_policy(command, terms.policy, terms.policies, context)
    if refusal is not None:
        return Decision([refusal])
    session_id = named_session_id(command.session_id, command.command_id)
    if context.used(session_id):
        detail = "the session that the request began was closed before its turn"
        return Decision([refuse(command, context, 409, "session_closed", detail)])
    event = r.SessionOpened(
        session_id=session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        command_id=f"{command.command_id}.open",
        policy=terms.policy,
        policies=terms.policies,
        name=command.session_id,
        purpose=terms.purpose,
        metadata=terms.metadata,
        agent=terms.agent,
        creation_version=context.fleet.versions[terms.policy],
        tokenizer_hash=context.fleet.policies[terms.policy].tokenizer_hash,
        max_age_ms=terms.max_age_ms,
        max_idle_ms=terms.max_idle_ms,
        fold_version=FOLD_VERSION,
    )
    return Decision([event], decide_again=True)


def _open(command: r.OpenSession, context: Context) -> Decision:
    policy = context.fleet.policies[command.policy]
    event = r.SessionOpened(
        session_id=command.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        command_id=command.command_id,
        reply=command.reply,
        policy=command.policy,
        policies=command.policies,
        purpose=command.purpose,
        split=command.split,
        task_id=command.task_id,
        group_id=command.group_id,
        sample=command.sample,
        attempt=command.attempt,
        group_size=command.group_size,
        min_group_size=command.min_group_size,
        turn_limit=command.turn_limit,
        pinned_version=command.pinned_version,
        metadata=command.metadata,
        module=command.module,
        agent=command.agent,
        creation_version=context.fleet.versions[command.policy],
        tokenizer_hash=policy.tokenizer_hash,
        max_age_ms=command.max_age_ms,
        max_idle_ms=command.max_idle_ms,
        fold_version=FOLD_VERSION,
        idempotency_key=command.idempotency_key,
        fork=command.fork,
        overrides=command.overrides,
        seed_session=command.seed_session,
    )
    problem = fork_problem(event, context)
    if problem is not None:
        return Decision([refuse(command, context, problem.status, FORK_REFUSED, problem.detail)])
    return Decision([event])


def _request(session: Session, command: r.RequestTurn, context: Context) -> Decision:
    if command.turn_id in session.turns:
        return Decision()
    try:
        joined = repeats.meant_turn(session, command, context)
    except repeats.KeyReused as error:
        return Decision([refuse(command, context, 422, "idempotency_key_reused", str(error))])
    if joined is not None:
        return Decision([_join(joined, command, context)])
    if (limit := session.opened.turn_limit) and session.had_turns(limit):
        detail = f"the session has had all of its {limit} turns"
        return Decision([refuse(command, context, 409, TURN_LIMIT, detail)])
    policy = context.fleet.policies[session.policy_of(command.module)]
    try:
        if session.playing_back:
            played = played_back(session, command, policy, context)
            if played is not None:
                return played
        started, prompt = start(session, command, policy, context)
    except BadRequest as error:
        return Decision([refuse(command, context, 400, error.reason, str(error))])
    if started.prompt_length >= policy.max_context:
        detail = (
            f"the prompt has {started.prompt_length} tokens, "
            f"the context holds {policy.max_context} with the answer"
        )
        return Decision([refuse(command, context, 400, PROMPT_TOO_LONG, detail)])
    if (size := record_bytes(started)) > LARGEST_EVENT_BYTES:
        detail = f"the turn takes {size} bytes on the log, which is too many"
        return Decision([refuse(command, context, 413, "request_too_large", detail)])
    wishes = wishes_of(started.tags)
    if context.fleet.lacks(wishes, context.now_ms):
        detail = f"no worker of the fleet has the required tags: {wishes}"
        return Decision([refuse(command, context, 503, "no_worker", detail)])
    decision = Decision([started])
    decision.extend(dispatch.first(session, started, prompt, context))
    return decision


def _join(turn: Turn, command: r.RequestTurn, context: Context) -> r.TurnJoined:
    return r.TurnJoined(
        session_id=command.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        command_id=command.command_id,
        turn_id=turn.started.turn_id,
        reply=command.reply,
    )


def _cancel(session: Session, command: r.CancelTurn, context: Context) -> Decision:
    """Return the decision that ends a running turn, or marks a completed one as undelivered.

    It is empty if the turn ended otherwise, or if another gateway waits for it.
    """
    turn = session.turns.get(command.turn_id)
    if turn is None or _wanted_by_another_gateway(turn, command):
        return Decision()
    if turn.state is TurnState.COMPLETED:
        return Decision([_undelivered(command, context)])
    if not turn.running:
        return Decision()
    event = r.TurnCancelled(
        session_id=command.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        command_id=command.command_id,
        turn_id=command.turn_id,
        reason=command.reason,
    )
    return Decision([event], dispatch.stop(session, [turn], command.reason, context))


def _undelivered(command: r.CancelTurn, context: Context) -> r.TurnUndelivered:
    return r.TurnUndelivered(
        session_id=command.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        command_id=command.command_id,
        turn_id=command.turn_id,
        reason=command.reason,
    )


def _wanted_by_another_gateway(turn: Turn, command: r.CancelTurn) -> bool:
    """Return True if a retry joined the turn later, through a different gateway.

    The latest gateway decides for all, since as a rule all of them serve the same client.
    """
    return command.reply is not None and command.reply not in turn.waiting[-1:]


def _assign_reward(session: Session, command: r.AssignReward, context: Context) -> Decision:
    """Return the decision about a reward, or about a judge's statement that it gives none."""
    before = session.rewards.get(judgement(command.reward))
    revision = 0 if before is None else before.revision + 1
    event = r.RewardAssigned(
        session_id=command.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        command_id=command.command_id,
        reply=command.reply,
        reward=replace(command.reward, revision=revision),
        final=command.final,
        idempotency_key=command.idempotency_key,
        failure=command.failure,
    )
    decision = Decision([event])
    if command.failure:
        if command.reward.name in session.lacking_judges:
            decision.events.append(finalized(session, JUDGE_FAILED, context))
        return decision
    if session.closed and session.has_rewards(session.closed, command):
        decision.events.append(finalized(session, "rewarded", context))
    return decision


def _close(session: Session, command: r.CloseSession, context: Context) -> Decision:
    if session.ended_by:
        return close(session, ruled(session, context, command), context)
    status, cause, limit = ending(session, command)
    awaited = awaited_rewards(session, command, cause, context)
    event = r.SessionClosed(
        session_id=command.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        command_id=command.command_id,
        reply=command.reply,
        status=status,
        reason=command.reason,
        cause=cause,
        limit=limit,
        await_reward_until_ms=context.now_ms + awaited.wait_ms,
        await_rewards=awaited.names,
        idempotency_key=command.idempotency_key,
        call_hash=asked_hash(command),
        judges=awaited.judges,
    )
    return close(session, event, context)
