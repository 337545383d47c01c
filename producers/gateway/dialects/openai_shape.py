"""Answer parts that the OpenAI and vLLM dialects share: errors, usage, event streams. Pure."""

from collections.abc import Sequence

import orjson

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import event
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import ReplyFinished

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment, which clients skip even before an answer begins, except Google's clients."""

_DONE = b"data: [DONE]\n\n"
_TOO_LONG = (
    "This model's maximum context length is {limit} tokens. However, your messages resulted in "
    "{length} tokens. Please reduce the length of the messages."
)
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    429: "rate_limit_error",
    504: "timeout_error",
}


def error_body(error: ApiError) -> bytes:
    """Return an error's body in OpenAI's format.

    If a prompt is too long, the message has OpenAI's wording, which agents look for.
    """
    message = error.message
    code = error.code or None
    if error.prompt_lengths is not None:
        length, limit = error.prompt_lengths
        message = _TOO_LONG.format(limit=limit, length=length)
        code = "context_length_exceeded"
    kind = _TYPES.get(
        error.status, "server_error" if error.status >= 500 else "invalid_request_error"
    )
    body = {
        "message": message,
        "type": kind,
        "param": error.param,
        "code": code,
    }
    return orjson.dumps({"error": body})


def head(name: str, kind: str, created: int, request: CanonicalRequest) -> dict[str, object]:
    """Return the members that begin an answer, or an event in a stream."""
    return {"id": name, "object": kind, "created": created, "model": request.model}


def tail(answers: Sequence[ReplyFinished]) -> dict[str, object]:
    """Return the members that end an answer: token counts and the newest policy version.

    The prompt counts once for all choices. Thinking tokens are left out if the renderer cannot
    count them. Cached tokens are always left out.
    """
    prompt = answers[0].prompt_tokens
    sampled = sum(answer.completion_tokens for answer in answers)
    versions = [answer.version for answer in answers if answer.version is not None]
    usage: dict[str, object] = {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }
    thought = [each.reasoning_tokens for each in answers if each.reasoning_tokens is not None]
    if len(thought) == len(answers):
        usage["completion_tokens_details"] = {"reasoning_tokens": sum(thought)}
    fingerprint = f"version-{max(versions)}" if versions else None
    return {"usage": usage, "system_fingerprint": fingerprint}


class OpenAiEvents:
    """Events that the chat, completions and vLLM streams share. Each one begins with `head`.

    With `include_usage`, every event has a `usage` member, as at the vendor. It is null in all
    events but the last.
    """

    def __init__(self, head: dict[str, object], include_usage: bool) -> None:
        self._last_head = _begun(head)
        self._head = _begun({**head, "usage": None}) if include_usage else self._last_head
        self._include_usage = include_usage

    def open(self, prompt_tokens: int) -> bytes:
        """Begin with nothing: each choice's first event begins its answer."""
        return b""

    def end(self, answers: Sequence[ReplyFinished]) -> bytes:
        """End the answer, with token counts if they were asked for."""
        if not self._include_usage:
            return _DONE
        last = {"choices": [], **tail(answers)}
        return event(self._last_head + b"," + orjson.dumps(last)[1:]) + _DONE

    def failed(self, error: ApiError) -> bytes:
        """End a stream that failed after it began."""
        return event(error_body(error))

    def keep_alive(self) -> bytes:
        """Write a comment, which every client skips."""
        return KEEP_ALIVE


def _begun(head: dict[str, object]) -> bytes:
    """Return an event's JSON up to where its other members follow."""
    return orjson.dumps(head)[:-1]
