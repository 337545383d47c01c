"""Round trips: a sampled message is sent as items, comes back as input, and is the same message."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta
from seamlessflow.producers.gateway.dialects.openai_chat.messages import canonical_messages
from seamlessflow.producers.gateway.dialects.openai_responses.request import parse
from seamlessflow.producers.gateway.dialects.openai_responses.response import (
    ResponseEvents,
    completion,
)
from seamlessflow.schemas.identity import tool_call_id
from seamlessflow.schemas.records import ReplyFinished
from tests.builders.records import replies

TURN = "0123456789abcdef7"
TOOLS = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}},
    {"type": "custom", "name": "patch"},
    {"type": "local_shell"},
    {"type": "namespace", "name": "team", "tools": [{"type": "function", "name": "spawn"}]},
]
USER = {"role": "user", "content": "hi"}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
some = texts.filter(bool)
values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 99) | texts, st.lists, max_leaves=3
)
objects = st.dictionaries(st.sampled_from(["a", "input", "command", "timeout_ms"]), values)
shell = st.fixed_dictionaries({"command": st.lists(texts)}, optional={"timeout_ms": st.integers(0)})
custom = st.fixed_dictionaries({"input": texts})
spellings: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{}, {"ensure_ascii": True}, {"separators": (",", ":")}, {"indent": 1}]
)


@st.composite
def arguments(draw: st.DrawFn) -> str:
    spelling: dict[str, Any] = {"ensure_ascii": False, **draw(spellings)}
    return draw(some | st.builds(lambda v: json.dumps(v, **spelling), objects | shell | custom))


names = st.sampled_from(["f", "patch", "local_shell", "team__spawn", "never_offered"])
calls = st.lists(st.tuples(names, arguments()), max_size=3)
Part = tuple[str, Any]


@st.composite
def parts(draw: st.DrawFn) -> list[Part]:
    """Return an answer in the order in which it was sampled."""
    thought: list[Part] = [("reasoning_content", text) for text in draw(st.lists(some, max_size=2))]
    said = st.tuples(st.just("content"), some)
    called = st.tuples(st.just("tool_calls"), st.tuples(names, arguments()))
    return thought + draw(st.lists(said | called, max_size=5))


def message(sampled: Sequence[Part]) -> dict[str, Any]:
    """Return the message that a worker makes of it."""
    whole: dict[str, Any] = {"role": "assistant", "content": ""}
    tool_calls: list[Any] = []
    for name, value in sampled:
        if name == "tool_calls":
            function = {"name": value[0], "arguments": value[1]}
            call_id = tool_call_id(TURN, len(tool_calls))
            tool_calls.append({"id": call_id, "type": "function", "function": function})
        else:
            whole[name] = whole.get(name, "") + value
    if tool_calls:
        whole |= {"content": whole["content"] or None, "tool_calls": tool_calls}
    return whole


def request(*items: Any, **more: Any) -> CanonicalRequest:
    body = {"model": "m", "input": [USER, *items], "tools": TOOLS, **more}
    return parse(orjson.dumps(body), 1)


def finished(sampled: Sequence[Part]) -> ReplyFinished:
    whole = orjson.dumps(message(sampled))
    return replies.finished(turn_id=TURN, message=whole)


def answered(sampled: Sequence[Part], **more: Any) -> list[Any]:
    """Return the items of the whole answer."""
    body = completion(TURN, 1, request(**more), [finished(sampled)])
    return list(orjson.loads(body)["output"])


def streamed(sampled: Sequence[Part], **more: Any) -> list[Any]:
    """Return the items of the same answer, streamed."""
    events = ResponseEvents(TURN, 1, request(stream=True, **more))
    data = events.open(3) + b"".join(events.delta(0, piece) for piece in pieces(sampled))
    answer = finished(sampled)
    data += events.finish(0, answer) + events.end([answer])
    read = [orjson.loads(event.partition(b"\ndata: ")[2]) for event in data.split(b"\n\n")[:-1]]
    items = [event["item"] for event in read if event["type"] == "response.output_item.done"]
    assert read[-1]["response"]["output"] == items
    return items


def pieces(sampled: Sequence[Part]) -> Iterator[ChoiceDelta]:
    called = 0
    for name, value in sampled:
        if name == "tool_calls":
            function = {"name": value[0], "arguments": value[1]}
            call = {"index": called, "id": tool_call_id(TURN, called), "function": function}
            called += 1
            yield ChoiceDelta(orjson.dumps({name: [call]}))
        else:
            yield ChoiceDelta(orjson.dumps({name: value}))


def canonical(sampled: Sequence[Part]) -> bytes:
    return canonical_messages([message(sampled)])[0]


@given(parts())
def test_a_whole_answer_comes_back_as_it_was_sampled(sampled: list[Part]) -> None:
    items = answered(sampled)
    assert request(*items).messages[1:] == (canonical(sampled),)


@given(parts())
def test_a_streamed_answer_comes_back_as_it_was_sampled(sampled: list[Part]) -> None:
    items = streamed(sampled)
    assert request(*items).messages[1:] == (canonical(sampled),)


@given(parts())
def test_encrypted_reasoning_is_enough(sampled: list[Part]) -> None:
    items = answered(sampled, include=["reasoning.encrypted_content"])
    for item in items:
        if item["type"] == "reasoning":
            del item["content"], item["id"]
    assert request(*items).messages[1:] == (canonical(sampled),)


@given(parts())
def test_ids_of_items_are_needed_for_the_spelling_of_wrapped_input_alone(
    sampled: list[Part],
) -> None:
    plain = [(name, value) for name, value in sampled if value[0] not in ("patch", "local_shell")]
    items = answered(plain)
    for item in items:
        del item["id"], item["status"]
    assert request(*items).messages[1:] == (canonical(plain),)


@given(st.lists(some, min_size=1, max_size=3))
def test_custom_input_spelt_as_models_do_comes_back_without_ids(inputs: list[str]) -> None:
    sampled: list[Part] = [
        ("tool_calls", ("patch", json.dumps({"input": text}, ensure_ascii=False)))
        for text in inputs
    ]
    items = answered(sampled)
    assert [item.pop("input") for item in items] == inputs
    back = [
        {"type": "custom_tool_call", "name": "patch", "call_id": item["call_id"], "input": text}
        for item, text in zip(items, inputs, strict=True)
    ]
    assert request(*back).messages[1:] == (canonical(sampled),)


@given(parts(), parts())
def test_two_answers_in_a_row_stay_two(first: list[Part], second: list[Part]) -> None:
    later = orjson.loads(orjson.dumps(answered(second)).replace(TURN.encode(), b"fedcba98"))
    expected = canonical(second).replace(TURN.encode(), b"fedcba98")
    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "42"}
        for item in [*answered(first), *later]
        if "call_id" in item
    ]
    read = request(*answered(first), *later, *outputs).messages[1:]
    assert read[:2] == (canonical(first), expected)


@given(parts(), st.booleans())
def test_answers_of_tools_may_stand_between_the_calls(sampled: list[Part], last: bool) -> None:
    items = answered(sampled)
    called = [item for item in items if "call_id" in item]
    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "42"}
        for item in called
    ]
    apart = [item for item in items if item not in called]
    between = [item for pair in zip(called, outputs, strict=True) for item in pair]
    messages = request(*apart, *(called + outputs if last else between)).messages[1:]
    assert messages[0] == canonical(sampled)
    assert len(messages) == 1 + len(outputs)
