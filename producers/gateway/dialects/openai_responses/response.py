"""Answers in the OpenAI Responses dialect, as JSON and as server-sent events. Pure.

A response is called `resp_<turn id>`. If it is not streamed, it has at most one message item. A
stream closes the message before a call begins, and text after the call becomes another message.
Log-probs also cover reasoning: the gateway has no tokenizer and cannot tell which tokens are text.

A stream has one open item at a time, because some agents can follow only one. A stream that fails
ends with two events: `error`, which OpenAI's client raises, and `response.failed`.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import RESPONSE, ChoiceDelta
from seamlessflow.producers.gateway.dialects.openai_responses.echoed import ECHOED, ENCRYPTED
from seamlessflow.producers.gateway.dialects.openai_responses.items import (
    ResponseItem,
    call_item,
    item_id,
    message_item,
    reasoning_item,
    text_part,
)
from seamlessflow.producers.gateway.dialects.openai_responses.open_items import (
    EventWriter,
    OpenCall,
    OpenMessage,
    OpenReasoning,
)
from seamlessflow.producers.gateway.dialects.openai_shape import KEEP_ALIVE, error_body
from seamlessflow.producers.gateway.dialects.scores import Score, id_list, scores
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.json_text import write_json
from seamlessflow.schemas.records import ReplyFinished

_CUT = "length"
_DEFAULTS: ResponseItem = {
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "service_tier": "default",
    "store": False,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "top_logprobs": 0,
    "truncation": "disabled",
}
_NOT_SHOWN = {"include", "store"}
"""Parameters that an answer does not repeat.

`store` is false whatever the request asks: no response can be read again. Requests in its session
may still continue it and name its items.
"""
_NOTHING_MORE = {"error": None, "incomplete_details": None, "usage": None}
_FAILURES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}


def completion(
    turn_id: str, created: int, request: CanonicalRequest, answers: Sequence[ReplyFinished]
) -> bytes:
    """Return a whole answer's body."""
    (answer,) = answers
    items = _items(turn_id, request, answer)
    return _ResponseStates(turn_id, created, request).finished(items, answer)


class ResponseEvents:
    """The writer for one streamed answer; each method returns the bytes to send."""

    def __init__(self, turn_id: str, created: int, request: CanonicalRequest) -> None:
        self._turn_id = turn_id
        self._request = request
        self._states = _ResponseStates(turn_id, created, request)
        self._offered = request.echoed.get("offered", {})
        self._encrypted = _wants_encrypted(request)
        self._write = EventWriter()
        self._open: OpenMessage | OpenReasoning | OpenCall | None = None
        self._items: list[ResponseItem] = []
        self._scores: list[ResponseItem] = []
        self._begun = False
        self._has_output = False

    def open(self, prompt_tokens: int) -> bytes:
        """Begin the response, without items."""
        self._begun = True
        state = orjson.Fragment(self._states.begun())
        return self._write("response.created", response=state) + self._write(
            "response.in_progress", response=state
        )

    def delta(self, choice: int, piece: ChoiceDelta) -> bytes:
        """Write the next part of an item."""
        if self._request.wants_logprobs:
            self._scores += self._scored(piece)
        added = orjson.loads(piece.delta)
        data = b""
        if text := added.get("reasoning_content"):
            data += self._add_reasoning(text)
        if text := added.get("content"):
            data += self._add_text(text)
        for call in added.get("tool_calls") or ():
            data += self._open_call(call) if "id" in call else self._more_of_call(call)
        return data

    def finish(self, choice: int, answer: ReplyFinished) -> bytes:
        """End the last item. An empty answer becomes an empty message."""
        data = b"" if self._has_output else self._open_message()
        if isinstance(self._open, OpenMessage) and self._scores:
            # Log-probs after the last text would otherwise be lost when the message closes.
            data += self._add_text("")
        return data + self._close("incomplete" if _is_cut(answer) else "completed")

    def end(self, answers: Sequence[ReplyFinished]) -> bytes:
        """End the response, with all its items."""
        (answer,) = answers
        state = orjson.Fragment(self._states.finished(self._items, answer))
        kind = "response.incomplete" if _is_cut(answer) else "response.completed"
        return self._write(kind, response=state)

    def failed(self, error: ApiError) -> bytes:
        """End a stream that failed after it began, even if only a keep-alive was sent."""
        data = b"" if self._begun else self.open(0)
        shown = orjson.loads(error_body(error))["error"]
        flat = {name: shown[name] for name in ("code", "message", "param")}
        state = orjson.Fragment(self._states.failed(self._items, error))
        data += self._write("error", **flat, error=shown)
        return data + self._write("response.failed", response=state)

    def keep_alive(self) -> bytes:
        """Write a comment, which every client skips."""
        return KEEP_ALIVE

    def _add_reasoning(self, text: str) -> bytes:
        if isinstance(self._open, OpenReasoning):
            return self._open.more(text)
        data = self._close("completed")
        self._open = opened = OpenReasoning(
            self._write, self._turn_id, len(self._items), self._encrypted
        )
        return data + opened.begin() + opened.more(text)

    def _add_text(self, text: str) -> bytes:
        data = self._open_message()
        assert isinstance(self._open, OpenMessage)  # nosec B101 # for the type checker
        scored = self._scores
        self._scores = []
        return data + self._open.more(text, scored)

    def _open_message(self) -> bytes:
        """Open a message, unless one is open."""
        if isinstance(self._open, OpenMessage):
            return b""
        data = self._close("completed")
        self._has_output = True
        self._open = opened = OpenMessage(self._write, self._turn_id, len(self._items))
        return data + opened.begin()

    def _open_call(self, call: dict[str, Any]) -> bytes:
        data = self._close("completed")
        self._has_output = True
        self._open = opened = OpenCall(
            self._write, self._turn_id, len(self._items), call, self._offered
        )
        data += opened.begin()
        arguments = call["function"].get("arguments")
        return data + opened.more(arguments) if arguments else data

    def _more_of_call(self, call: dict[str, Any]) -> bytes:
        if not isinstance(self._open, OpenCall) or self._open.number != call["index"]:
            raise ValueError(f"more of call {call['index']} of {self._turn_id}, which has ended")
        return self._open.more(call["function"]["arguments"])

    def _close(self, status: str) -> bytes:
        if self._open is None:
            return b""
        data, item = self._open.close(status)
        self._items.append(item)
        self._open = None
        return data

    def _scored(self, piece: ChoiceDelta) -> list[ResponseItem]:
        most = self._request.sampling.top_logprobs
        scored = scores(piece.token_ids, piece.logprobs, piece.tensors, most, piece.from_token)
        return _shown_scores(scored)


class _ResponseStates:
    """One response's states, as JSON."""

    def __init__(self, turn_id: str, created: int, request: CanonicalRequest) -> None:
        echoed = {name: request.echoed.get(name) for name in ECHOED if name not in _NOT_SHOWN}
        present = {name: value for name, value in echoed.items() if value is not None}
        head = {
            "id": RESPONSE + turn_id,
            "object": "response",
            "created_at": created,
            "model": request.model,
            "background": False,
            "tools": [_shown(tool) for tool in request.echoed.get("tools", ())],
            **echoed,
            **_DEFAULTS,
            **present,
        }
        self._head = write_json(head)[:-1]
        self._wants_ids = request.wants_token_ids

    def begun(self) -> bytes:
        """Return the response before anything was sampled."""
        return self._state("in_progress", [])

    def finished(self, items: Sequence[ResponseItem], answer: ReplyFinished) -> bytes:
        """Return the whole response, complete or cut at the token limit."""
        details = {"reason": "max_output_tokens"} if _is_cut(answer) else None
        status = "incomplete" if _is_cut(answer) else "completed"
        ids: dict[str, object] = {}
        if self._wants_ids:
            ids["prompt_token_ids"] = id_list(answer.prompt_ids)
            ids["token_ids"] = id_list(answer.token_ids)
        return self._state(status, items, incomplete_details=details, usage=_usage(answer), **ids)

    def failed(self, items: Sequence[ResponseItem], error: ApiError) -> bytes:
        """Return the response after a failure."""
        code = _FAILURES.get(error.status, "server_error")
        return self._state("failed", items, error={"code": code, "message": error.message})

    def _state(self, status: str, items: Sequence[ResponseItem], **more: object) -> bytes:
        state = {"status": status, "output": items, **_NOTHING_MORE, **more}
        return self._head + b"," + orjson.dumps(state)[1:]


def _is_cut(answer: ReplyFinished) -> bool:
    """Return whether the answer ended at the request's token limit."""
    return answer.finish_reason == _CUT


def _wants_encrypted(request: CanonicalRequest) -> bool:
    """Return whether the request asks for reasoning in `encrypted_content` also."""
    return ENCRYPTED in request.echoed.get("include", ())


def _shown_scores(scored: Sequence[Score] | None) -> list[ResponseItem]:
    """Return tokens' log-probs in OpenAI's format."""
    return [
        {
            **_shown_score(score.token, score.logprob),
            "top_logprobs": [_shown_score(*t) for t in score.top],
        }
        for score in scored or ()
    ]


def _shown_score(token: str, logprob: float) -> ResponseItem:
    return {"token": token, "logprob": logprob, "bytes": []}


def _items(turn_id: str, request: CanonicalRequest, answer: ReplyFinished) -> list[ResponseItem]:
    message = orjson.loads(answer.message or b"{}")
    calls = message.get("tool_calls") or ()
    items = list[ResponseItem]()
    if reasoning := message.get("reasoning_content"):
        name = item_id("reasoning", turn_id, 0)
        items.append(reasoning_item(name, reasoning, "completed", _wants_encrypted(request)))
    content = message.get("content") or ""
    if content or not calls:
        name = item_id("message", turn_id, len(items))
        items.append(message_item(name, [_part(request, answer, content)], "completed"))
    tools = request.echoed.get("offered", {})
    for call in calls:
        items.append(call_item(turn_id, len(items), call, tools, "completed"))
    if _is_cut(answer):
        items[-1]["status"] = "incomplete"
    return items


def _part(request: CanonicalRequest, answer: ReplyFinished, content: str) -> ResponseItem:
    if not request.wants_logprobs:
        return text_part(content)
    most = request.sampling.top_logprobs
    scored = scores(answer.token_ids, answer.logprobs, answer.tensors, most)
    return text_part(content, _shown_scores(scored))


def _usage(answer: ReplyFinished) -> ResponseItem:
    # Unknown counts are written as 0: cached tokens, and with some renderers reasoning tokens.
    return {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": answer.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": answer.reasoning_tokens or 0},
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }


def _shown(tool: Any) -> Any:
    """Return a tool as the answer shows it; a function always has `parameters` and `strict`."""
    return {"parameters": None, "strict": None, **tool} if tool["type"] == "function" else tool
