"""Answers in the OpenAI chat completions dialect, as JSON and as server-sent events. Pure.

Messages and deltas arrive as JSON and are sent as the same bytes. They are parsed only if something
in them must change. A response is called `chatcmpl-<turn id>`.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import CHAT, ChoiceDelta, event
from seamlessflow.producers.gateway.dialects.openai_shape import OpenAiEvents, head, tail
from seamlessflow.producers.gateway.dialects.scores import Score, id_list, scores, scores_json
from seamlessflow.schemas.records import ReplyFinished

_SCORE = b'{"token":"token_id:%d","logprob":%b,"bytes":null,"top_logprobs":[]}'


def completion(
    turn_id: str, created: int, request: CanonicalRequest, answers: Sequence[ReplyFinished]
) -> bytes:
    """Return a whole answer's body, with one choice for each item in `answers`."""
    choices = [_choice(number, answer, request) for number, answer in enumerate(answers)]
    body = {
        **head(CHAT + turn_id, "chat.completion", created, request),
        "choices": choices,
        **tail(answers),
    }
    if request.wants_token_ids:
        body["prompt_token_ids"] = id_list(answers[0].prompt_ids)
    return orjson.dumps(body)


class ChatEvents(OpenAiEvents):
    """The writer for one streamed answer; each method returns the bytes to send."""

    def __init__(self, turn_id: str, created: int, request: CanonicalRequest) -> None:
        begin = head(CHAT + turn_id, "chat.completion.chunk", created, request)
        super().__init__(begin, request.include_usage)
        self._most = request.sampling.top_logprobs
        self._wants_ids = request.wants_token_ids
        self._begun: set[int] = set()

    def delta(self, choice: int, piece: ChoiceDelta) -> bytes:
        """Write a choice's next part. The choice's first event names the role."""
        shown = _logprobs(piece, self._most, piece.from_token)
        ids = self._named("token_ids", piece.token_ids)
        return self._opening(choice, piece.prompt_ids) + self._chunk(
            choice, _with_types(piece.delta), shown, b"null", ids
        )

    def finish(self, choice: int, answer: ReplyFinished) -> bytes:
        """End a choice."""
        reason = orjson.dumps(answer.finish_reason)
        # The earlier deltas named all tokens.
        ids = self._named("token_ids", None if answer.token_ids is None else b"")
        opening = self._opening(choice, answer.prompt_ids)
        return opening + self._chunk(choice, b"{}", b"null", reason, ids)

    def _opening(self, choice: int, prompt_ids: bytes | None) -> bytes:
        if choice in self._begun:
            return b""
        self._begun.add(choice)
        delta = b'{"role":"assistant","content":""}'
        prompt = self._named("prompt_token_ids", prompt_ids)
        return self._chunk(choice, delta, b"null", b"null", b"", prompt)

    def _named(self, name: str, ids: bytes | None) -> bytes:
        """Return a further JSON member with these ids, or nothing if no ids were requested."""
        return b',"%b":%b' % (name.encode(), orjson.dumps(id_list(ids))) if self._wants_ids else b""

    def _chunk(
        self,
        choice: int,
        delta: bytes,
        logprobs: bytes,
        reason: bytes,
        ids: bytes,
        prompt: bytes = b"",
    ) -> bytes:
        return event(
            b'%b,"choices":[{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b%b}]%b}'
            % (self._head, choice, delta, logprobs, reason, ids, prompt)
        )


def _choice(number: int, answer: ReplyFinished, request: CanonicalRequest) -> dict[str, object]:
    message = answer.message or b'{"role":"assistant","content":null}'
    if b'"content":' not in message:
        # The vendor's answers always have this member, even if they hold only calls.
        message = orjson.dumps({**orjson.loads(message), "content": None})
    choice: dict[str, Any] = {
        "index": number,
        "message": orjson.Fragment(message),
        "logprobs": orjson.Fragment(_logprobs(answer, request.sampling.top_logprobs))
        if request.wants_logprobs
        else None,
        "finish_reason": answer.finish_reason,
    }
    if request.wants_token_ids:
        choice["token_ids"] = id_list(answer.token_ids)
    return choice


def _logprobs(source: ChoiceDelta | ReplyFinished, most: int, from_token: int = 0) -> bytes:
    """Return log-probs as JSON, with `most` likely tokens at each place; null without any."""
    if source.token_ids is None or source.logprobs is None:
        return b"null"
    if not most:
        listed = scores_json(source.token_ids, source.logprobs, _SCORE)
        return b'{"content":%b,"refusal":null}' % listed
    return orjson.dumps(
        _shown(scores(source.token_ids, source.logprobs, source.tensors, most, from_token) or ())
    )


def _shown(scored: Sequence[Score]) -> dict[str, object]:
    content = [
        {
            **_token(score.token, score.logprob),
            "top_logprobs": [_token(token, logprob) for token, logprob in score.top],
        }
        for score in scored
    ]
    return {"content": content, "refusal": None}


def _token(name: str, logprob: float) -> dict[str, object]:
    return {"token": name, "logprob": logprob, "bytes": None}


def _with_types(delta: bytes) -> bytes:
    """Return the delta with the `type` that clients expect where a tool call begins."""
    if b'"tool_calls"' not in delta:
        return delta
    read = orjson.loads(delta)
    for call in read.get("tool_calls") or ():
        if "id" in call:
            call.setdefault("type", "function")
    return orjson.dumps(read)
