"""Answers of the OpenAI Responses dialect, as response objects. Pure.

A response is called `resp_<turn id>`. It has at most one message item if it is not streamed. A
stream closes the message before a call begins; text after the call is another message. Log-probs
include those of reasoning: the gateway has no tokenizer and cannot find the tokens of the text.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import RESPONSE
from seamlessflow.producers.gateway.dialects.openai_responses.echoed import ECHOED, ENCRYPTED
from seamlessflow.producers.gateway.dialects.openai_responses.items import (
    Item,
    call_item,
    item_id,
    message_item,
    reasoning_item,
    text_part,
)
from seamlessflow.producers.gateway.dialects.scores import Score, scores
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.json_text import write_json
from seamlessflow.schemas.records import ReplyFinished

_CUT = "length"
_DEFAULTS: Item = {
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
"""Parameters that an answer does not repeat. `store` is false whatever was asked: no response can
be read again, though requests of its session may go on from it and name its items."""
_FAILURES = {400: "invalid_prompt", 429: "rate_limit_exceeded"}


def completion(
    turn_id: str, created: int, request: CanonicalRequest, answers: Sequence[ReplyFinished]
) -> bytes:
    """Return the body of a whole answer."""
    (answer,) = answers
    items = _items(turn_id, request, answer)
    return ResponseStates(turn_id, created, request).finished(items, answer)


class ResponseStates:
    """The states of one response, as JSON."""

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

    def begun(self) -> bytes:
        """Return the response before anything was sampled."""
        return self._state("in_progress", [])

    def finished(self, items: Sequence[Item], answer: ReplyFinished) -> bytes:
        """Return the whole response, complete or cut at the token limit."""
        details = {"reason": "max_output_tokens"} if is_cut(answer) else None
        status = "incomplete" if is_cut(answer) else "completed"
        return self._state(status, items, incomplete_details=details, usage=_usage(answer))

    def failed(self, items: Sequence[Item], error: ApiError) -> bytes:
        """Return the response after a failure."""
        code = _FAILURES.get(error.status, "server_error")
        return self._state("failed", items, error={"code": code, "message": error.message})

    def _state(self, status: str, items: Sequence[Item], **more: object) -> bytes:
        state = {"status": status, "output": items, **_NOTHING_MORE, **more}
        return self._head + b"," + orjson.dumps(state)[1:]


_NOTHING_MORE = {"error": None, "incomplete_details": None, "usage": None}


def is_cut(answer: ReplyFinished) -> bool:
    """Return whether the answer ended at the token limit of the request."""
    return answer.finish_reason == _CUT


def wants_encrypted(request: CanonicalRequest) -> bool:
    """Return whether the request asks for reasoning in `encrypted_content` also."""
    return ENCRYPTED in request.echoed.get("include", ())


def shown_scores(scored: Sequence[Score] | None) -> list[Item]:
    """Return log-probs of tokens in OpenAI's format."""
    return [
        {
            **_shown_score(score.token, score.logprob),
            "top_logprobs": [_shown_score(*t) for t in score.top],
        }
        for score in scored or ()
    ]


def _shown_score(token: str, logprob: float) -> Item:
    return {"token": token, "logprob": logprob, "bytes": []}


def _items(turn_id: str, request: CanonicalRequest, answer: ReplyFinished) -> list[Item]:
    message = orjson.loads(answer.message or b"{}")
    calls, items = message.get("tool_calls") or (), list[Item]()
    if reasoning := message.get("reasoning_content"):
        name = item_id("reasoning", turn_id, 0)
        items.append(reasoning_item(name, reasoning, "completed", wants_encrypted(request)))
    content = message.get("content") or ""
    if content or not calls:
        name = item_id("message", turn_id, len(items))
        items.append(message_item(name, [_part(request, answer, content)], "completed"))
    tools = request.echoed.get("offered", {})
    for call in calls:
        items.append(call_item(turn_id, len(items), call, tools, "completed"))
    if is_cut(answer):
        items[-1]["status"] = "incomplete"
    return items


def _part(request: CanonicalRequest, answer: ReplyFinished, content: str) -> Item:
    if not request.wants_logprobs:
        return text_part(content)
    most = request.sampling.top_logprobs
    scored = scores(answer.token_ids, answer.logprobs, answer.tensors, most)
    return text_part(content, shown_scores(scored))


def _usage(answer: ReplyFinished) -> Item:
    # The protocol writes unknown counts as 0: cached tokens, and reasoning of some renderers.
    return {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": answer.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": answer.reasoning_tokens or 0},
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }


def _shown(tool: Any) -> Any:
    """Return a tool of an answer; a function always has `parameters` and `strict`."""
    return {"parameters": None, "strict": None, **tool} if tool["type"] == "function" else tool
