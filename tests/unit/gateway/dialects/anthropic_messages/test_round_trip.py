"""Round trips: Anthropic's client sends an answer back exactly as it was sampled."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import anthropic
import httpx2
import orjson
import pytest
from anthropic.types import Message
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.consumers.trajectories.sessions.message_keys import message_key
from seamlessflow.producers.gateway.dialects.anthropic_messages.request import parse
from seamlessflow.producers.gateway.dialects.anthropic_messages.response import (
    MessageEvents,
    completion,
)
from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta
from seamlessflow.schemas.records import ReplyFinished
from tests.builders.records import replies

USER: Any = {"role": "user", "content": "x"}
TOOL: Any = {"name": "f", "input_schema": {"type": "object"}}

texts = st.text(max_size=30)
spoken = texts.filter(bool)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts | st.just("$arguments"), values, max_size=3)
spellings: Sequence[dict[str, Any]] = (
    {},
    {"separators": (",", ":")},
    {"indent": 1},
    {"ensure_ascii": False, "sort_keys": True},
)
arguments = (
    st.builds(lambda value, style: json.dumps(value, **style), objects, st.sampled_from(spellings))
    | values.map(json.dumps)
    | st.sampled_from(['{"a":1e999}', '{"a":"\\ud800"}', '{"a":1,"a":2}', '{"a": -0}', "{}", "[]"])
)


@st.composite
def sampled(draw: st.DrawFn) -> dict[str, Any]:
    """Return an assistant message in the form that workers write."""
    message: dict[str, Any] = {"role": "assistant", "content": draw(texts)}
    if thought := draw(texts):
        message["reasoning_content"] = thought
    calls = draw(st.lists(st.tuples(spoken, arguments), max_size=3))
    if calls:
        message["content"] = message["content"] or None
        message["tool_calls"] = [
            {
                "type": "function",
                "id": f"call_t_{n}",
                "function": {"name": name, "arguments": spelt},
            }
            for n, (name, spelt) in enumerate(calls)
        ]
    return message


class Vendor:
    """A transport that answers the client's first call and keeps the body of the next one."""

    def __init__(self, message: dict[str, Any], cuts: Sequence[int] = ()) -> None:
        self.body = b""
        self._message = message
        self._cuts = cuts
        transport = httpx2.MockTransport(self._answer)
        self.client = anthropic.Anthropic(
            api_key="k",
            max_retries=0,
            http_client=anthropic.DefaultHttpxClient(transport=transport),
        )

    def _answer(self, sent: httpx2.Request) -> httpx2.Response:
        self.body = sent.read()
        request = parse(self.body, 1)
        answer = finished(self._message)
        if not request.stream:
            return httpx2.Response(200, content=completion("t", 1, request, [answer]))
        data = stream(request, answer, pieces(self._message, self._cuts))
        return httpx2.Response(200, content=data, headers={"content-type": "text/event-stream"})

    def came_back(self, answer: Message) -> dict[str, Any]:
        """Return the canonical form of the answer in the next call."""
        results: list[Any] = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "done"}
            for block in answer.content
            if block.type == "tool_use"
        ]
        go_on: Any = {"role": "user", "content": [*results, {"type": "text", "text": "go on"}]}
        self.client.messages.create(
            model="m", max_tokens=9, messages=[USER, answer.to_param(), go_on]
        )
        read: dict[str, Any] = orjson.loads(parse(self.body, 1).messages[1])
        return read


def finished(message: dict[str, Any]) -> ReplyFinished:
    reason = "tool_calls" if "tool_calls" in message else "stop"
    return replies.answer(message=message, finish_reason=reason, completion_tokens=3)


def pieces(message: dict[str, Any], cuts: Sequence[int]) -> list[dict[str, Any]]:
    """Return the message in deltas: texts cut at `cuts`, whole tool calls between them."""
    made: list[dict[str, Any]] = []
    for name in ("reasoning_content", "content"):
        text = message.get(name) or ""
        bounds = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
        made += [{name: text[a:b]} for a, b in pairwise(bounds)]
    called = [
        {"tool_calls": [{"index": n, **call}]}
        for n, call in enumerate(message.get("tool_calls", ()))
    ]
    place = sum(cuts) % (len(made) + 1)
    return made[:place] + called + made[place:]


def stream(
    request: CanonicalRequest, answer: ReplyFinished, deltas: Sequence[dict[str, Any]]
) -> bytes:
    events = MessageEvents("t", 1, request)
    data = events.open(5) + events.keep_alive()
    data += b"".join(events.delta(0, ChoiceDelta(orjson.dumps(delta))) for delta in deltas)
    return data + events.finish(0, answer) + events.end([answer])


def assert_same(back: dict[str, Any], message: dict[str, Any]) -> None:
    """Check that both are equal, arguments as JSON; then the manager extends the turn."""
    keys = [
        message_key(orjson.dumps(side, option=orjson.OPT_SORT_KEYS), "arguments")
        for side in (back, message)
    ]
    assert keys[0] == keys[1]
    assert back.get("reasoning_content") == message.get("reasoning_content")
    calls = [side.get("tool_calls", ()) for side in (back, message)]
    assert [call["id"] for call in calls[0]] == [call["id"] for call in calls[1]]


@given(message=sampled())
def test_a_whole_answer_comes_back_as_it_was_sampled(message: dict[str, Any]) -> None:
    vendor = Vendor(message)
    answer = vendor.client.messages.create(model="m", max_tokens=9, messages=[USER], tools=[TOOL])
    assert_same(vendor.came_back(answer), message)


@given(message=sampled(), cuts=st.lists(st.integers(0, 29), max_size=4))
def test_a_streamed_answer_comes_back_as_it_was_sampled(
    message: dict[str, Any], cuts: list[int]
) -> None:
    vendor = Vendor(message, cuts)
    with vendor.client.messages.stream(
        model="m", max_tokens=9, messages=[USER], tools=[TOOL]
    ) as reply:
        answer = reply.get_final_message()
    assert answer.usage.output_tokens == 3
    assert_same(vendor.came_back(answer), message)


@pytest.mark.parametrize(
    "spelt", ['{"a": 1, "b": [true, null]}', '{"é": "ü"}', "{}", "[1, 2]", '"x"']
)
def test_arguments_come_back_in_the_spelling_of_most_models(spelt: str) -> None:
    call = {"type": "function", "id": "call_t_0", "function": {"name": "f", "arguments": spelt}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    vendor = Vendor(message)
    answer = vendor.client.messages.create(model="m", max_tokens=9, messages=[USER], tools=[TOOL])
    assert vendor.came_back(answer)["tool_calls"] == [call]
