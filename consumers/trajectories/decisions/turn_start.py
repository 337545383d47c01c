"""The event that starts a turn, with its place in the tree and its sampling parameters. Pure.

An engine reports log-probs from the model's distribution at the turn's temperature, over the whole
vocabulary (`TurnStarted.logprob_temperature`). So any temperature is exact. Everything else that
changes the distribution makes them inexact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson
import xxhash

from seamlessflow.consumers.trajectories.decisions.context import Context
from seamlessflow.consumers.trajectories.matching.chat import match
from seamlessflow.consumers.trajectories.matching.match import Match, PromptRenderer, intervenes
from seamlessflow.consumers.trajectories.matching.raw import match_raw
from seamlessflow.consumers.trajectories.matching.recorded import newly_recorded
from seamlessflow.consumers.trajectories.sessions.message_keys import (
    Strictness,
    chained,
    message_key,
    shape_key,
)
from seamlessflow.consumers.trajectories.sessions.session import Session, TurnState
from seamlessflow.infra.rendering.settings import RendererError, with_template_args
from seamlessflow.infra.settings import COLDEST
from seamlessflow.infra.worker.tags import WISHES, read_wishes
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import is_reference, referenced_turn, resolved
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.records import PolicyWeights, Sampling
from seamlessflow.schemas.tokens import TOKEN_BYTES

_UNFORCED = ("auto", "none")
_BIAS_BYTES = 24
_TRUNCATIONS = ("top_p", "top_k")
"""The reasons that `PolicyWeights.train_truncated` covers."""
# Values with which a parameter leaves the model's distribution unchanged.
_NEUTRAL = {
    "min_p": (None, 0.0),
    "presence_penalty": (None, 0.0),
    "frequency_penalty": (None, 0.0),
    "repetition_penalty": (None, 1.0),
    "min_tokens": (None, 0),
}
_UNTRUNCATED = {"top_p": (None, 1.0), "top_k": (None, 0, -1)}
_UNSET = vars(Sampling())


class BadRequest(ValueError):
    """A request that cannot be carried out as it is; `reason` is for programs."""

    def __init__(self, detail: str, reason: str = "bad_request") -> None:
        self.reason = reason
        super().__init__(detail)


def start(
    session: Session, command: r.RequestTurn, policy: PolicyWeights, context: Context
) -> tuple[r.TurnStarted, bytes]:
    """Return the event and all the prompt's ids. Raises `BadRequest`."""
    hit = _match(session, command, policy, context)
    room = policy.max_context - len(hit.prompt_ids) // TOKEN_BYTES
    sampling = effective_sampling(command.sampling, policy.overrides, max(room, 0))
    if (overrides := session.opened.overrides) is not None:
        sampling = effective_sampling(sampling, overrides, max(room, 0))
    if _trains(session) and not (policy.frozen or command.wants_logprobs):
        top = max(sampling.top_logprobs, context.control.record_top)
        sampling = replace(sampling, top_logprobs=top)
    return _event(session, command, policy, context, hit, sampling), hit.prompt_ids


def asked_key(session: Session, command: r.RequestTurn, policy: PolicyWeights) -> bytes:
    """Return the key for the request's whole history. Raises `BadRequest`."""
    key = _shape(command, policy)
    messages = whole_history(session, command)
    strictness: Strictness = "exact" if command.raw else policy.strictness  # type: ignore[assignment]
    for message in messages:
        key = chained(key, message_key(message, strictness))
    return key


def whole_history(session: Session, command: r.RequestTurn) -> Sequence[bytes]:
    """Return the request's messages, with references resolved.

    The request's own instructions come first, then the history of `previous_turn`, then the new
    messages. Raises `BadRequest`.
    """
    messages = command.messages
    if any(map(is_reference, messages)):
        messages = tuple(_resolved(session, message) for message in messages)
    if command.previous_turn is None:
        return messages
    turn = session.turns.get(command.previous_turn)
    if turn is None or turn.state is not TurnState.COMPLETED:
        detail = f"the session has no response {command.previous_turn!r} to go on from"
        raise BadRequest(detail, "previous_response_not_found")
    inherited = session.history(turn)[turn.started.own_messages :]
    # Each request brings its own instructions, and they stand before the history.
    count = command.own_messages
    new = messages[count:]
    _refuse_unanswered(turn.message, new)
    return [*messages[:count], *inherited, *new]


def record_bytes(started: r.TurnStarted) -> int:
    """Return roughly the event's size on the log in bytes: all the parts that can grow large."""
    return (
        len(started.suffix_ids)
        + len(started.tools or b"")
        + len(started.template_args or b"")
        + sum(map(len, started.new_messages))
        + _sampling_bytes(started.sampling_requested)
        + _sampling_bytes(started.sampling_effective)
    )


def effective_sampling(asked: Sampling, overrides: Sampling, room: int) -> Sampling:
    """Return the parameters `asked` for with the policy's `overrides` applied.

    The smallest length limit counts: the agent's, the policy's, or `room`. `room` is how many
    tokens still fit into the context. All other overrides replace the agent's values.
    """
    changed = {name: value for name, value in vars(overrides).items() if value != _UNSET[name]}
    limits = (room, asked.max_tokens, overrides.max_tokens)
    changed["max_tokens"] = min(limit for limit in limits if limit is not None)
    return replace(asked, **changed)


def inexact_reason(sampling: Sampling) -> str:
    """Return the parameter that makes the sampled distribution differ from the log-probs.

    Empty if they are exact. A truncation is named only if nothing else is inexact. A forced tool
    call is exact: its opening is in the prompt, and no engine constrains the tokens behind it.
    """
    if sampling.temperature is not None and sampling.temperature < COLDEST:
        return "greedy"
    if name := _first_bent(sampling, _NEUTRAL):
        return name
    if sampling.logit_bias:
        return "logit_bias"
    if sampling.json_schema is not None:
        return "json_schema"
    return _first_bent(sampling, _UNTRUNCATED)


def _sampling_bytes(sampling: r.Sampling) -> int:
    texts = (sampling.json_schema or "", *sampling.stop)
    return sum(len(text.encode()) for text in texts) + _BIAS_BYTES * len(sampling.logit_bias)


def _event(
    session: Session,
    command: r.RequestTurn,
    policy: PolicyWeights,
    context: Context,
    hit: Match,
    sampling: r.Sampling,
) -> r.TurnStarted:
    matched = _matched(session, command, policy, hit)
    inexact = inexact_reason(sampling)
    return r.TurnStarted(
        session_id=command.session_id,
        epoch=context.epoch,
        at_ms=context.now_ms,
        command_id=command.command_id,
        turn_id=command.turn_id,
        reply=command.reply,
        **matched,
        tools=command.tools,
        sampling_requested=command.sampling,
        sampling_effective=sampling,
        behavior_exact=not inexact,
        inexact_reason=inexact,
        train_inexact=policy.train_inexact or (policy.train_truncated and inexact in _TRUNCATIONS),
        logprob_temperature=_logprob_temperature(sampling),
        train_undelivered=policy.train_undelivered,
        siblings=policy.siblings,
        max_context=policy.max_context,
        policy=policy.policy,
        module=command.module,
        previous_turn=command.previous_turn,
        own_messages=command.own_messages,
        raw=command.raw,
        stream=command.stream,
        wants_logprobs=command.wants_logprobs,
        wants_token_ids=command.wants_token_ids,
        deadline_ms=command.deadline_ms,
        idempotency_key=command.idempotency_key,
        retry_count=command.retry_count,
        body_hash=command.body_hash,
        choice=command.choice,
        tags=_wishes(session, command),
        control=_control(session, policy, context),
        seed=_seed(session, command),
        frozen=policy.frozen,
    )


def _trains(session: Session) -> bool:
    return session.opened.purpose == "train"


def _control(session: Session, policy: PolicyWeights, context: Context) -> r.TurnControl | None:
    """Return the rule that may end the turn early; evaluations and frozen policies have none.

    The session's id decides for all its turns whether the session is exempt.
    """
    terms = context.control
    if terms.rule is None or policy.frozen or not _trains(session):
        return None
    drawn = xxhash.xxh3_64_intdigest(f"exempt {session.session_id}".encode()) / 2**64
    return replace(terms.rule, exempt=drawn < terms.exempt)


def _seeded_by(session: Session) -> str:
    """Return the session whose sampling seeds this one takes, or an empty string.

    An exploration session takes its own seeds, so that another session can take them later.
    """
    opened = session.opened
    if opened.seed_session is not None:
        return opened.seed_session.session_id
    return opened.session_id if opened.purpose == "explore" else ""


def _seed(session: Session, command: r.RequestTurn) -> int | None:
    """Return a turn's seed by its place in its session, or None if the worker chooses one."""
    name = _seeded_by(session)
    if not name:
        return None
    digest = xxhash.xxh3_64_intdigest(repr((name, len(session.turns), command.choice)).encode())
    return digest >> 1  # engines take signed numbers


def _wishes(session: Session, command: r.RequestTurn) -> tuple[str, ...]:
    """Return the tags that the call asks for, or its session's tags. Raises `BadRequest`.

    An exploration session always uses its own workers, and so does a session that samples it again.
    No call can bring tokens from a cheap worker into training.
    """
    try:
        of_session = read_wishes(session.opened.metadata.get(WISHES, ""))
    except ValueError as error:
        raise BadRequest(f"metadata.{WISHES} of the session: {error}") from error
    return of_session if _seeded_by(session) else command.tags or of_session


def _matched(
    session: Session, command: r.RequestTurn, policy: PolicyWeights, hit: Match
) -> dict[str, Any]:
    """Return the fields that show where the request was matched, and by which rule."""
    return {
        "parent_node": hit.parent_node,
        "parent_end": hit.parent_end,
        "suffix_ids": hit.suffix_ids,
        "suffix_origin": hit.suffix_origin,
        "prompt_length": len(hit.prompt_ids) // TOKEN_BYTES,
        "prompt_hash": xxhash.xxh3_128_digest(hit.prompt_ids),
        "match_rule": hit.rule,
        "match_detail": hit.detail,
        "ambiguous": hit.ambiguous,
        "parent_turn": hit.parent_turn,
        "new_messages": hit.new_messages,
        "history_key": hit.history_key,
        "prefill": hit.prefill,
        "template_args": command.template_args,
        "matching": newly_recorded(session, policy),
        "answer_differs": hit.answer_differs,
        "intervened": not command.raw and intervenes(session, hit, policy.strictness),  # type: ignore[arg-type]
    }


def _match(
    session: Session, command: r.RequestTurn, policy: PolicyWeights, context: Context
) -> Match:
    shape = _shape(command, policy)
    strictness: Strictness = policy.strictness  # type: ignore[assignment]
    messages = whole_history(session, command)
    try:
        renderer = context.renderer(with_template_args(policy, command.template_args))
        if command.raw:
            return match_raw(session, messages[0], policy.policy, shape, renderer)
        named = command.previous_turn
        hit = match(session, messages, command.tools, shape, renderer, strictness, named)
        if command.tool_choice not in _UNFORCED:
            opening = _opening(hit.prompt_ids, messages, command, renderer)
            hit = hit.with_answer_begun(opening, session.tree)
        return hit
    except (RendererError, ValueError) as error:
        raise BadRequest(str(error)) from error


def _shape(command: r.RequestTurn, policy: PolicyWeights) -> bytes:
    return shape_key(policy.policy, policy.tokenizer_hash, command.tools, command.template_args)


def _opening(
    prompt: bytes, messages: Sequence[bytes], command: r.RequestTurn, renderer: PromptRenderer
) -> bytes:
    """Return the ids that open the tool call which `tool_choice` forces."""
    name = None if command.tool_choice == "required" else command.tool_choice
    tools = read_json(command.tools) if command.tools else None
    return renderer.forced_call(
        prompt, [orjson.loads(message) for message in messages], tools, name
    )


def _resolved(session: Session, message: bytes) -> bytes:
    if not is_reference(message):
        return message
    named = referenced_turn(message)
    turn = session.turns.get(named)
    if turn is None or turn.state is not TurnState.COMPLETED:
        raise BadRequest(f"the session has no items of response {named!r}", "item_not_found")
    return resolved(message, turn.message)


def _refuse_unanswered(answer: bytes, new_messages: Sequence[bytes]) -> None:
    """Raise `BadRequest` if a call in the answer has no result; only the tree shows the calls."""
    calls = orjson.loads(answer).get("tool_calls") or ()
    results = {orjson.loads(message).get("tool_call_id") for message in new_messages if calls}
    if missing := [call["id"] for call in calls if call["id"] not in results]:
        raise BadRequest(f"No tool output found for function call {', '.join(missing)}.")


def _logprob_temperature(sampling: Sampling) -> float:
    """Return the temperature at which engines report log-probs; 1 for a greedy turn."""
    return sampling.temperature or 1.0


def _first_bent(sampling: Sampling, neutral: Mapping[str, Sequence[float | None]]) -> str:
    """Return the first of these parameters that changes the distribution, or an empty string."""
    return next(
        (name for name, values in neutral.items() if getattr(sampling, name) not in values), ""
    )
