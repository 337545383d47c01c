"""How long a prompt would be, without a turn. Pure; a question leaves nothing on the log."""

import orjson

from consumers.trajectories.decision import Context
from consumers.trajectories.session import Session
from consumers.trajectories.tree import TOKEN_BYTES
from infra.renderer_settings import RendererError, with_template_args
from schemas.records import CommandAnswered, CountTokens


def count(session: Session | None, command: CountTokens, context: Context) -> CommandAnswered:
    """The answer: how many tokens the whole prompt has, or why that cannot be said."""
    policy = context.fleet.policies.get(_policy_name(session, command))
    if policy is None:
        return not_counted(command, 404, "unknown_session", "no such session")
    tools = orjson.loads(command.tools) if command.tools else None
    try:
        messages = [orjson.loads(message) for message in command.messages]
        renderer = context.renderer(with_template_args(policy, command.template_args))
        prompt = renderer.render(messages, tools)
    except (RendererError, ValueError) as error:
        return not_counted(command, 400, "bad_request", str(error))
    return _answer(command, tokens=len(prompt) // TOKEN_BYTES)


def not_counted(command: CountTokens, status: int, reason: str, detail: str) -> CommandAnswered:
    """The answer that there is none."""
    return _answer(command, status=status, reason=reason, detail=detail)


def _policy_name(session: Session | None, command: CountTokens) -> str:
    if session is not None:
        return session.policy_of(command.module)
    terms = command.terms
    return "" if terms is None else terms.policies.get(command.module, terms.policy)


def _answer(
    command: CountTokens,
    status: int = 200,
    reason: str = "",
    detail: str = "",
    tokens: int | None = None,
) -> CommandAnswered:
    return CommandAnswered(
        gateway="" if command.reply is None else command.reply.gateway,
        session_id=command.session_id,
        command_id=command.command_id,
        status=status,
        reason=reason,
        detail=detail,
        tokens=tokens,
    )
