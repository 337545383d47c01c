"""Answers to questions: a prompt's token count, and a session's state. Pure.

Questions leave nothing on the log.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from seamlessflow.consumers.trajectories.decisions.context import Context
from seamlessflow.consumers.trajectories.sessions.assemble import standing
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.rendering.settings import RendererError, with_template_args
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.records import CommandAnswered, CountTokens, DescribeSession
from seamlessflow.schemas.tokens import TOKEN_BYTES
from seamlessflow.schemas.topics import GatewayQuestion


def count(session: Session | None, command: CountTokens, context: Context) -> CommandAnswered:
    """Return how many tokens the whole prompt has, or the error that a turn would get."""
    name = _policy_name(session, command)
    if name is None:
        return _no_session(session, command, context)
    policy = context.fleet.policies.get(name)
    if policy is None:
        return unanswered(command, 503, "unknown_policy", f"no weights of policy {name!r}")
    tools = read_json(command.tools) if command.tools else None
    try:
        messages = [orjson.loads(message) for message in command.messages]
        renderer = context.renderer(with_template_args(policy, command.template_args))
        prompt = renderer.render(messages, tools)
    except (RendererError, ValueError) as error:
        return unanswered(command, 400, "bad_request", str(error))
    return _answer_to(command, tokens=len(prompt) // TOKEN_BYTES)


def describe(
    session: Session | None, question: DescribeSession, context: Context
) -> CommandAnswered:
    """Return a session's state as JSON, or 404 for a session that never existed."""
    session_id = question.session_id
    if session is not None:
        answer = _described(question, _present(session))
        return replace(answer, trajectory=_trajectory(session, question, context))
    if context.used(session_id):
        ended = {"session_id": session_id, "status": "finalized"}
        return _described(question, {**ended, **context.fates.describe(session_id)})
    return unanswered(question, 404, "unknown_session", f"no session {session_id}")


def unanswered(question: GatewayQuestion, status: int, reason: str, detail: str) -> CommandAnswered:
    """Return the answer that refuses a question; `reason` is for programs, `detail` for people."""
    return replace(_answer_to(question), status=status, reason=reason, detail=detail)


def _policy_name(session: Session | None, command: CountTokens) -> str | None:
    """Return the policy that a turn would get, or None if its session would refuse the turn."""
    if session is not None and not session.closed:
        return session.policy_of(command.module)
    terms = command.terms
    return None if terms is None else terms.policies.get(command.module, terms.policy)


def _no_session(session: Session | None, command: CountTokens, context: Context) -> CommandAnswered:
    if session is not None and session.closed:
        return unanswered(command, 409, "session_closed", session.closed.reason)
    if context.used(command.session_id):
        return unanswered(command, 409, "session_closed", "the session is finalized")
    return unanswered(command, 404, "unknown_session", f"no session {command.session_id}")


def _described(question: DescribeSession, state: Mapping[str, Any]) -> CommandAnswered:
    return _answer_to(question, state=orjson.dumps(state))


def _trajectory(session: Session, question: DescribeSession, context: Context) -> bytes | None:
    if not question.wants_trajectory:
        return None
    return encode(standing(session, context.partition, context.epoch, context.now_ms))


def _present(session: Session) -> Mapping[str, Any]:
    """Return the state of a session that is open, or closed and waiting for rewards."""
    opened = session.opened
    closed = session.closed
    described = {
        "session_id": opened.session_id,
        "status": "open" if closed is None else "closed",
        "policy": opened.policy,
        "purpose": opened.purpose,
        "group_id": opened.group_id or opened.session_id,
        "sample": opened.sample,
        "attempt": opened.attempt,
        "opened_at_ms": opened.at_ms,
        "open_until_ms": opened.at_ms + opened.max_age_ms,
        "last_activity_ms": session.last_activity_ms,
        "turns": len(session.sampled_turns),
        "turns_under_way": len(session.running),
        "rewards": [
            {"name": reward.name, "value": reward.value, "turn": reward.turn_id}
            for reward in session.rewards.values()
        ],
    }
    if closed is None:
        return described
    names = {reward.name for reward in session.rewards.values() if reward.scope == "session"}
    return {
        **described,
        "closed": {"status": closed.status, "reason": closed.reason},
        "awaits_rewards": [name for name in closed.await_rewards if name not in names],
        "awaits_rewards_until_ms": closed.await_reward_until_ms,
    }


def _answer_to(
    question: GatewayQuestion, *, tokens: int | None = None, state: bytes | None = None
) -> CommandAnswered:
    """Return the answer to a question: a token count, or a session's state as JSON."""
    return CommandAnswered(
        gateway="" if question.reply is None else question.reply.gateway,
        session_id=question.session_id,
        command_id=question.command_id,
        tokens=tokens,
        state=state,
    )
