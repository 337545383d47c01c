"""Description of a session for whoever asks the gateway. Pure; it leaves nothing on the log."""

from collections.abc import Mapping
from typing import Any

import orjson

from seamlessflow.consumers.trajectories.decisions.context import Context, answer_to, unanswered
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.schemas.records import CommandAnswered, DescribeSession


def describe(
    session: Session | None, question: DescribeSession, context: Context
) -> CommandAnswered:
    """Return the state of a session as JSON, or 404 for one that never was."""
    session_id = question.session_id
    if session is not None:
        return _described(question, _present(session))
    if context.used(session_id):
        ended = {"session_id": session_id, "status": "finalized"}
        return _described(question, {**ended, **context.fates.of(session_id)})
    return unanswered(question, 404, "unknown_session", f"no session {session_id}")


def _described(question: DescribeSession, state: Mapping[str, Any]) -> CommandAnswered:
    return answer_to(question, state=orjson.dumps(state))


def _present(session: Session) -> Mapping[str, Any]:
    """Return the members of a session that is open, or closed and waits for rewards."""
    opened, closed = session.opened, session.closed
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
