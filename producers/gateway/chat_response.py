"""The OpenAI chat completions dialect, to the agent: replies to JSON and server-sent events. Pure.

Messages and deltas come as JSON and go out as the same bytes; the only thing read is what must be
changed. A response is called `chatcmpl-<turn id>`.
"""

from collections.abc import Sequence
from struct import unpack

import orjson

from producers.gateway.canonical import CanonicalRequest
from producers.gateway.dialect import Piece
from producers.gateway.errors import ApiError
from schemas.records import ReplyFinished

ID_PREFIX = "chatcmpl-"
_DONE = b"data: [DONE]\n\n"
_LEAST_LOGPROB = -9999.0
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    429: "rate_limit_error",
    504: "timeout_error",
}


def completion(
    turn_id: str, created: int, request: CanonicalRequest, answers: Sequence[ReplyFinished]
) -> bytes:
    """The body of a whole answer with one choice for each of `answers`."""
    choices = [
        _choice(number, answer, request.wants_logprobs) for number, answer in enumerate(answers)
    ]
    body = {
        "id": ID_PREFIX + turn_id,
        "object": "chat.completion",
        "created": created,
        "model": request.model,
        "choices": choices,
        "usage": _usage(answers),
        "system_fingerprint": _fingerprint(answers),
    }
    return orjson.dumps(body)


def error_body(error: ApiError) -> bytes:
    """An error in OpenAI's shape."""
    kind = _TYPES.get(
        error.status, "server_error" if error.status >= 500 else "invalid_request_error"
    )
    body = {
        "message": error.message,
        "type": kind,
        "param": error.param,
        "code": error.code or None,
    }
    return orjson.dumps({"error": body})


class Chunks:
    """Makes the events of one streamed answer; each method gives bytes to send."""

    def __init__(self, turn_id: str, created: int, request: CanonicalRequest) -> None:
        head = {
            "id": ID_PREFIX + turn_id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": request.model,
        }
        self._head = b"data: " + orjson.dumps(head)[:-1]
        self._include_usage = request.include_usage
        self._begun: set[int] = set()

    def open(self, prompt_tokens: int) -> bytes:
        """Each choice says for itself who speaks."""
        return b""

    def delta(self, choice: int, piece: Piece) -> bytes:
        """More of a choice; before its first text it says who speaks."""
        scores = _logprobs(piece.token_ids, piece.logprobs)
        shown = b"null" if scores is None else orjson.dumps(scores)
        return self._opening(choice) + self._chunk(choice, _with_types(piece.delta), shown, b"null")

    def finish(self, choice: int, answer: ReplyFinished) -> bytes:
        """The end of a choice."""
        reason = orjson.dumps(answer.finish_reason)
        return self._opening(choice) + self._chunk(choice, b"{}", b"null", reason)

    def end(self, answers: Sequence[ReplyFinished]) -> bytes:
        """The end of the answer, with its token counts where they were asked for."""
        if not self._include_usage:
            return _DONE
        tail: dict[str, object] = {
            "choices": [],
            "usage": _usage(answers),
            "system_fingerprint": _fingerprint(answers),
        }
        return self._head + b"," + orjson.dumps(tail)[1:] + b"\n\n" + _DONE

    def failed(self, error: ApiError) -> bytes:
        """What ends a stream that fails after it began."""
        return b"data: " + error_body(error) + b"\n\n"

    def keep_alive(self) -> bytes:
        """A comment, which every reader of events skips."""
        return b": keep-alive\n\n"

    def _opening(self, choice: int) -> bytes:
        if choice in self._begun:
            return b""
        self._begun.add(choice)
        return self._chunk(choice, b'{"role":"assistant","content":""}', b"null", b"null")

    def _chunk(self, choice: int, delta: bytes, logprobs: bytes, reason: bytes) -> bytes:
        return b'%b,"choices":[{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b}]}\n\n' % (
            self._head,
            choice,
            delta,
            logprobs,
            reason,
        )


def _usage(answers: Sequence[ReplyFinished]) -> dict[str, int]:
    """Token counts; the prompt of several choices is one."""
    prompt = answers[0].prompt_tokens
    sampled = sum(answer.completion_tokens for answer in answers)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }


def _fingerprint(answers: Sequence[ReplyFinished]) -> str | None:
    """The newest policy version among the tokens."""
    versions = [answer.version for answer in answers if answer.version is not None]
    return f"version-{max(versions)}" if versions else None


def _choice(number: int, answer: ReplyFinished, logprobs: bool) -> dict[str, object]:
    message = answer.message or b'{"role":"assistant","content":null}'
    if b'"content":' not in message:
        message = orjson.dumps({**orjson.loads(message), "content": None})
    return {
        "index": number,
        "message": orjson.Fragment(message),
        "logprobs": _logprobs(answer.token_ids, answer.logprobs) if logprobs else None,
        "finish_reason": answer.finish_reason,
    }


def _logprobs(token_ids: bytes | None, logprobs: bytes | None) -> dict[str, object] | None:
    if token_ids is None or logprobs is None:
        return None
    ids = unpack(f"<{len(token_ids) // 4}i", token_ids)
    values = unpack(f"<{len(logprobs) // 4}f", logprobs)
    content = [
        {
            "token": f"token_id:{token}",
            "logprob": max(value, _LEAST_LOGPROB),
            "bytes": None,
            "top_logprobs": [],
        }
        for token, value in zip(ids, values, strict=True)
    ]
    return {"content": content, "refusal": None}


def _with_types(delta: bytes) -> bytes:
    """Tool calls get the type that clients expect where one begins."""
    if b'"tool_calls"' not in delta:
        return delta
    read = orjson.loads(delta)
    for call in read.get("tool_calls") or ():
        if "id" in call:
            call.setdefault("type", "function")
    return orjson.dumps(read)
