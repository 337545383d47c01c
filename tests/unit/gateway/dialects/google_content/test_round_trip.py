"""Round trips: Google's client sends an answer back exactly as it was sampled."""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import httpx
import orjson
import pytest
from google import genai
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.consumers.trajectories.sessions.message_keys import message_key
from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta
from seamlessflow.producers.gateway.routes import GOOGLE, dialect_of_call
from seamlessflow.schemas.records import ReplyFinished
from tests.builders.records import replies

TOOL = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(name="f", parameters_json_schema={"type": "object"})
    ]
)

texts = st.text(max_size=30) | st.text("a\x0b\x1c\x85\u2028\u2029\r\n", max_size=5)
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
    """A transport that answers the client's first call and keeps the body of the next one.

    All examples share a client: each one would read the certificates of its machine again.
    """

    def __init__(self) -> None:
        client = httpx.Client(transport=httpx.MockTransport(self._answer))
        self.client = genai.Client(
            api_key="k", http_options=types.HttpOptions(base_url="http://g", httpx_client=client)
        )

    def will_answer(self, message: dict[str, Any], cuts: Sequence[int] = ()) -> None:
        """Answer the next calls with this message; its texts are streamed in these pieces."""
        self.body = b""
        self._message = message
        self._cuts = cuts

    def _answer(self, sent: httpx.Request) -> httpx.Response:
        self.body = sent.read()
        alt = sent.url.params.get("alt", "").encode()
        dialect = dialect_of_call(GOOGLE, sent.url.path, {b"alt": alt}.__getitem__)
        request = dialect.parse(self.body, 1)
        answer = finished(self._message)
        if not request.stream:
            body = dialect.completion("t", 1, request, [answer])
            return httpx.Response(200, content=body)
        events = dialect.events("t", 1, request)
        data = dialect.waiting + events.open(5) + events.keep_alive()
        for delta in pieces(self._message, self._cuts):
            data += events.delta(0, ChoiceDelta(orjson.dumps(delta)))
        data += events.finish(0, answer) + events.end([answer])
        return httpx.Response(200, content=data, headers={"content-type": "text/event-stream"})

    def came_back(self, chat: Any, *, with_ids: bool = True) -> dict[str, Any]:
        """Return the canonical form of the answer in the client's next call."""
        calls = [
            part.function_call
            for content in chat.get_history()[1:]
            for part in content.parts
            if part.function_call
        ]
        results = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=call.id if with_ids else None, name=call.name, response={"output": str(n)}
                )
            )
            for n, call in enumerate(calls)
        ]
        chat.send_message([*results, types.Part(text="go on")])
        messages = GOOGLE.parse(self.body, 1).messages
        answered = [orjson.loads(message) for message in messages[2 : 2 + len(calls)]]
        assert [message["tool_call_id"] for message in answered] == [call.id for call in calls]
        assert [message["content"] for message in answered] == [str(n) for n in range(len(calls))]
        read: dict[str, Any] = orjson.loads(messages[1])
        return read


@pytest.fixture(scope="module")
def vendor() -> Vendor:
    return Vendor()


def chat_of(vendor: Vendor, *, shows_thoughts: bool) -> Any:
    config = types.GenerateContentConfig(
        tools=[TOOL],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        thinking_config=types.ThinkingConfig(include_thoughts=shows_thoughts),
    )
    return vendor.client.chats.create(model="m", config=config)


def finished(message: dict[str, Any]) -> ReplyFinished:
    reason = "tool_calls" if "tool_calls" in message else "stop"
    return replies.answer(message=message, finish_reason=reason, completion_tokens=3)


def pieces(message: dict[str, Any], cuts: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the message in deltas: texts cut at `cuts`, whole tool calls between them."""
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
    yield from [*made[:place], *called, *made[place:]]


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


@given(message=sampled(), shows_thoughts=st.booleans())
def test_a_whole_answer_comes_back_as_it_was_sampled(
    vendor: Vendor, message: dict[str, Any], shows_thoughts: bool
) -> None:
    vendor.will_answer(message)
    chat = chat_of(vendor, shows_thoughts=shows_thoughts)
    answer = chat.send_message("x")
    thoughts = [part.text for part in answer.candidates[0].content.parts if part.thought]
    assert thoughts == (
        [message["reasoning_content"]] if has_thought(message, shows_thoughts) else []
    )
    assert_same(vendor.came_back(chat), message)


@given(
    message=sampled(), cuts=st.lists(st.integers(0, 29), max_size=4), shows_thoughts=st.booleans()
)
def test_a_streamed_answer_comes_back_as_it_was_sampled(
    vendor: Vendor, message: dict[str, Any], cuts: list[int], shows_thoughts: bool
) -> None:
    vendor.will_answer(message, cuts)
    chat = chat_of(vendor, shows_thoughts=shows_thoughts)
    *_, last = chat.send_message_stream("x")
    assert last.usage_metadata.candidates_token_count == 3
    assert_same(vendor.came_back(chat), message)


def has_thought(message: dict[str, Any], shows_thoughts: bool) -> bool:
    return shows_thoughts and bool(message.get("reasoning_content"))


@pytest.mark.parametrize(
    "spelt", ['{"a": 1, "b": [true, null]}', '{"é": "ü"}', "{}", "[1, 2]", '"x"']
)
def test_arguments_come_back_in_the_spelling_of_most_models(vendor: Vendor, spelt: str) -> None:
    call = {"type": "function", "id": "call_t_0", "function": {"name": "f", "arguments": spelt}}
    vendor.will_answer({"role": "assistant", "content": None, "tool_calls": [call]})
    chat = chat_of(vendor, shows_thoughts=False)
    chat.send_message("x")
    assert vendor.came_back(chat)["tool_calls"] == [call]


@given(message=sampled())
def test_responses_without_ids_answer_the_calls_of_their_name_in_order(
    vendor: Vendor, message: dict[str, Any]
) -> None:
    vendor.will_answer(message)
    chat = chat_of(vendor, shows_thoughts=False)
    chat.send_message("x")
    assert_same(vendor.came_back(chat, with_ids=False), message)
