"""Number of tokens of a prompt that no turn is started for. Pure; it leaves nothing on the log."""

import orjson

from seamlessflow.consumers.trajectories.decisions.context import Context, answer_to, unanswered
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.rendering.settings import RendererError, with_template_args
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.records import CommandAnswered, CountTokens
from seamlessflow.schemas.tokens import TOKEN_BYTES


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
    return answer_to(command, tokens=len(prompt) // TOKEN_BYTES)


def _policy_name(session: Session | None, command: CountTokens) -> str | None:
    """Return the policy a turn would have, or None if it would be refused for its session."""
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
