"""Reasons why a worker does not sample a turn, and the records that report them. Pure.

Only a prompt that has grown too long is the policy's own failure (`cause`). For any other reason
the session leaves its group and the sample is tried again.
"""

from dataclasses import dataclass
from typing import Literal, TypedDict

from seamlessflow.producers.rollout.engine.errors import (
    PromptTooLong,
    RequestInvalid,
    SamplingUnsupported,
)
from seamlessflow.schemas.records import GenerateTurn, Sampling, TurnFailed, TurnInterrupted
from seamlessflow.schemas.tokens import TOKEN_BYTES

Cause = Literal["policy", "environment", "infrastructure"]

_NOT_BENT: dict[str, tuple[object, ...]] = {
    "min_p": (None, 0.0),
    "presence_penalty": (None, 0.0),
    "frequency_penalty": (None, 0.0),
    "repetition_penalty": (None, 1.0),
    "logit_bias": ({},),
    "min_tokens": (None, 0),
}
"""Fields that no engine here supports, each with the values that change nothing."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a turn fails; `status` is the HTTP status for the agent's call."""

    status: int
    reason: str
    detail: str
    cause: Cause


PAST_DEADLINE = Refusal(504, "deadline", "not sampled to its end in time", "infrastructure")


class TurnFields(TypedDict):
    """Fields that all records of a turn share."""

    session_id: str
    turn_id: str
    dispatch: int
    worker: str
    incarnation: str
    at_ms: int


def turn_fields(request: GenerateTurn, now_ms: int) -> TurnFields:
    """Return the fields that all records of a turn share."""
    return {
        "session_id": request.session_id,
        "turn_id": request.turn_id,
        "dispatch": request.dispatch,
        "worker": request.worker,
        "incarnation": request.incarnation,
        "at_ms": now_ms,
    }


def unstarted(request: GenerateTurn, reason: str, now_ms: int) -> TurnInterrupted:
    """Return the record that hands back a turn which was not given to an engine here."""
    return TurnInterrupted(
        **turn_fields(request, now_ms),
        token_offset=len(request.completion_ids) // TOKEN_BYTES,
        token_ids=b"",
        logprobs=b"",
        reason=reason,
    )


def failed(request: GenerateTurn, refusal: Refusal, now_ms: int) -> TurnFailed:
    """Return the record that ends the turn."""
    return TurnFailed(
        **turn_fields(request, now_ms),
        status=refusal.status,
        reason=refusal.reason,
        detail=refusal.detail,
        cause=refusal.cause,
    )


def refusal(
    request: GenerateTurn, policy: str, version: int, max_context: int, now_ms: int
) -> Refusal | None:
    """Return why a worker with this policy and version must not sample the turn, or None."""
    if now_ms >= request.deadline_ms:
        return PAST_DEADLINE
    # Failed rather than handed back: the manager would send it here again and again.
    if request.policy != policy:
        return _misdirected(f"asks for policy {request.policy}, this worker serves {policy}")
    if request.pinned_version not in (None, version):
        return _misdirected(f"pinned to version {request.pinned_version}, loaded is {version}")
    if len(request.prompt_ids) % TOKEN_BYTES or len(request.completion_ids) % TOKEN_BYTES:
        return bad_request("token ids are not whole int32 numbers")
    if not 0 <= request.prefill <= len(request.prompt_ids) // TOKEN_BYTES:
        return bad_request(f"prefill {request.prefill} is not within the prompt")
    if request.adapter:
        return unsupported_value(f"adapter {request.adapter}: adapters are not supported")
    if names := unsupported(request.sampling):
        return unsupported_value(f"sampling by {', '.join(names)} is not supported")
    if (length := len(request.prompt_ids) // TOKEN_BYTES) >= max_context:
        return too_long(length, max_context)
    return None


def unsupported(sampling: Sampling) -> tuple[str, ...]:
    """Return the names of fields that are set and that no engine supports."""
    return tuple(
        name for name, values in _NOT_BENT.items() if getattr(sampling, name) not in values
    )


def refused(error: RequestInvalid) -> Refusal:
    """Return the refusal for a request that the engine refused."""
    if isinstance(error, PromptTooLong):
        return too_long(error.length, error.limit)
    if isinstance(error, SamplingUnsupported):
        return unsupported_value(error.reason)
    return bad_request(error.reason)


def too_long(length: int, limit: int) -> Refusal:
    """Return the refusal for a prompt that leaves no room for a completion."""
    detail = f"the prompt has {length} tokens, the context {limit}"
    return Refusal(400, "prompt_too_long", detail, "policy")


def bad_request(detail: str) -> Refusal:
    """Return the refusal for a wrong request."""
    return Refusal(400, "bad_request", detail, "environment")


def unsupported_value(detail: str) -> Refusal:
    """Return the refusal if a request asks for something that this system does not support."""
    return Refusal(400, "unsupported_value", detail, "environment")


def _misdirected(detail: str) -> Refusal:
    return Refusal(503, "no_worker", detail, "infrastructure")
