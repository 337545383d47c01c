from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from anthropic.types import ErrorResponse, Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from seamlessflow.producers.gateway.dialects.anthropic_messages.request import parse
from seamlessflow.producers.gateway.dialects.anthropic_messages.response import (
    MessageEvents,
    completion,
    error_body,
)
from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import ReplyFinished
from tests.builders.records import replies

CALL = {"id": "call_t_0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
OTHER = {"id": "call_t_1", "type": "function", "function": {"name": "g", "arguments": "{}"}}
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def request(**more: Any) -> CanonicalRequest:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    return parse(orjson.dumps({**body, **more}), 4)


def finished(
    reason: str = "stop", stop_sequence: str | None = None, **message: Any
) -> ReplyFinished:
    return replies.finished(
        message=orjson.dumps({"role": "assistant", **message}),
        finish_reason=reason,
        stop_sequence=stop_sequence,
        prompt_tokens=5,
        completion_tokens=3,
    )


def answered(answer: ReplyFinished, **more: Any) -> Message:
    body = completion("t", 1, request(**more), [answer])
    return Message.model_validate_json(body, strict=True)


def events(
    *deltas: dict[str, Any], reason: str = "stop", stop: str | None = None, **more: Any
) -> list[dict[str, Any]]:
    """Return the events of an answer, each checked with the official client's model."""
    made = MessageEvents("t", 1, request(**more))
    data = made.open(5)
    data += b"".join(made.delta(0, ChoiceDelta(orjson.dumps(delta))) for delta in deltas)
    answer = finished(reason, stop, content="")
    return list(read(data + made.finish(0, answer) + made.end([answer])))


def read(data: bytes) -> Iterable[dict[str, Any]]:
    for event in data.removesuffix(b"\n\n").split(b"\n\n"):
        head, _, body = event.partition(b"\ndata: ")
        content = orjson.loads(body)
        assert head == b"event: " + content["type"].encode()
        if content["type"] != "ping":
            EVENT.validate_json(body, strict=True)
        yield content


def kinds(stream: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in stream]


def test_an_answer_is_a_message() -> None:
    message = answered(finished(content="hello"))
    assert message.id == "msg_t"
    assert message.model == "m"
    assert [block.model_dump(exclude_none=True) for block in message.content] == [
        {"type": "text", "text": "hello"}
    ]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    usage = message.usage
    assert (usage.input_tokens, usage.output_tokens) == (5, 3)
    assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (0, 0)
    assert usage.output_tokens_details is None


def test_tokens_of_thinking_are_told_where_they_are_known() -> None:
    answer = replace(finished(content="hello"), reasoning_tokens=2)
    details = answered(answer).usage.output_tokens_details
    assert details is not None and details.thinking_tokens == 2
    ended = MessageEvents("t", 1, request()).finish(0, answer)
    (delta,) = read(ended)
    assert delta["usage"]["output_tokens_details"] == {"thinking_tokens": 2}


def test_all_that_a_message_can_hold_is_a_block() -> None:
    answer = finished("tool_calls", content="ok", reasoning_content="hm", tool_calls=[CALL, OTHER])
    message = answered(answer)
    assert message.stop_reason == "tool_use"
    assert [block.model_dump(exclude_none=True) for block in message.content] == [
        {"type": "thinking", "thinking": "hm", "signature": "t"},
        {"type": "text", "text": "ok"},
        {"type": "tool_use", "id": "call_t_0", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "call_t_1", "name": "g", "input": {}},
    ]


@pytest.mark.parametrize("content", [None, ""])
def test_an_answer_without_anything_has_no_blocks(content: str | None) -> None:
    assert answered(finished(content=content)).content == []


@pytest.mark.parametrize(
    ("reason", "read_as"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("tool_calls", "tool_use")],
)
def test_why_it_ended_is_told(reason: str, read_as: str) -> None:
    assert answered(finished(reason, content="x")).stop_reason == read_as
    assert events(reason=reason)[-2]["delta"]["stop_reason"] == read_as


@pytest.mark.parametrize(
    ("reason", "ending"), [("stop", ("stop_sequence", "END")), ("tool_calls", ("tool_use", None))]
)
def test_a_stop_sequence_that_ended_the_answer_is_told(
    reason: str, ending: tuple[str, str | None]
) -> None:
    message = answered(finished(reason, "END", content="x"))
    assert (message.stop_reason, message.stop_sequence) == ending
    delta = events(reason=reason, stop="END")[-2]["delta"]
    assert (delta["stop_reason"], delta["stop_sequence"]) == ending


@pytest.mark.parametrize("arguments", ["[1]", '"x"', "7", "null", '{"a":1e999}', '{"a":"\\ud800"}'])
def test_arguments_that_are_no_object_do_not_break_a_client(arguments: str) -> None:
    call = {**CALL, "function": {"name": "f", "arguments": arguments}}
    block = answered(finished("tool_calls", content=None, tool_calls=[call])).content[0]
    assert block.type == "tool_use" and block.input == {"$arguments": arguments}


def test_arguments_are_spelt_as_they_were_sampled() -> None:
    answer = finished("tool_calls", content=None, tool_calls=[CALL])
    assert b'"input":{"a": 1}' in completion("t", 1, request(), [answer])
    deltas = [event["delta"] for event in events({"tool_calls": [{"index": 0, **CALL}]})[2:3]]
    assert deltas == [{"type": "input_json_delta", "partial_json": '{"a": 1}'}]


def test_a_stream_has_the_vendors_sequence() -> None:
    stream = events(
        {"reasoning_content": "h"},
        {"reasoning_content": "m"},
        {"content": "he"},
        {"content": "llo"},
        {"tool_calls": [{"index": 0, **CALL}, {"index": 1, **OTHER}]},
        reason="tool_calls",
    )
    assert kinds(stream) == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * 3,
        "content_block_stop",
        "content_block_start",
        *["content_block_delta"] * 2,
        "content_block_stop",
        *["content_block_start", "content_block_delta", "content_block_stop"] * 2,
        "message_delta",
        "message_stop",
    ]
    deltas = [event["delta"] for event in stream if event["type"] == "content_block_delta"]
    assert deltas == [
        {"type": "thinking_delta", "thinking": "h"},
        {"type": "thinking_delta", "thinking": "m"},
        {"type": "signature_delta", "signature": "t"},
        {"type": "text_delta", "text": "he"},
        {"type": "text_delta", "text": "llo"},
        {"type": "input_json_delta", "partial_json": '{"a": 1}'},
        {"type": "input_json_delta", "partial_json": "{}"},
    ]
    starts = [event for event in stream if event["type"] == "content_block_start"]
    assert [event["index"] for event in starts] == [0, 1, 2, 3]
    assert [event["content_block"]["type"] for event in starts] == [
        "thinking",
        "text",
        "tool_use",
        "tool_use",
    ]


def test_counts_come_with_the_start_and_the_end() -> None:
    stream = events({"content": "x"})
    assert stream[0]["message"]["usage"]["input_tokens"] == 5
    usage = stream[-2]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (5, 3)


def test_a_stream_without_anything_has_no_blocks() -> None:
    assert kinds(events()) == ["message_start", "message_delta", "message_stop"]


def test_text_behind_a_tool_call_is_a_block_of_its_own() -> None:
    stream = events({"content": "a"}, {"tool_calls": [{"index": 0, **CALL}]}, {"content": "b"})
    starts = [event["content_block"] for event in stream if event["type"] == "content_block_start"]
    assert [block["type"] for block in starts] == ["text", "tool_use", "text"]


@pytest.mark.parametrize(
    ("config", "blocks", "seen"),
    [
        ({"type": "adaptive", "display": "omitted"}, ["thinking", "text"], ""),
        ({"type": "disabled"}, ["text"], None),
    ],
)
def test_thinking_that_is_not_wanted_is_not_shown(
    config: Any, blocks: list[str], seen: str | None
) -> None:
    message = answered(finished(content="x", reasoning_content="hm"), thinking=config)
    assert [block.type for block in message.content] == blocks
    stream = events({"reasoning_content": "hm"}, {"content": "x"}, thinking=config)
    starts = [event["content_block"] for event in stream if event["type"] == "content_block_start"]
    assert [block["type"] for block in starts] == blocks
    assert "ping" in kinds(stream)
    assert "thinking_delta" not in [event.get("delta", {}).get("type") for event in stream]
    if message.content[0].type == "thinking":
        assert (message.content[0].thinking, message.content[0].signature) == (seen, "t")


def test_the_stream_says_that_it_is_alive_or_that_it_failed() -> None:
    made = MessageEvents("t", 1, request())
    assert made.keep_alive() == b'event: ping\ndata: {"type":"ping"}\n\n'
    data = made.failed(ApiError(504, "too late", code="deadline"))
    assert data.startswith(b"event: error\ndata: ")
    failure = ErrorResponse.model_validate_json(data.partition(b"data: ")[2])
    assert (failure.error.type, failure.error.message) == ("timeout_error", "too late")
    assert failure.request_id == "t"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (409, "conflict_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
    ],
)
def test_an_error_has_the_vendors_type(status: int, kind: str) -> None:
    body = orjson.loads(error_body(ApiError(status, "in words", code="c", param="p")))
    assert body["type"] == "error"
    assert (body["error"]["type"], body["error"]["message"]) == (kind, "in words")
    assert body["error"]["details"] == {"error_code": "c", "param": "p"}


def test_a_prompt_that_is_too_long_is_told_in_the_vendors_words() -> None:
    detail = "the prompt has 70 tokens, the context holds 64"
    body = orjson.loads(error_body(ApiError(400, detail, code="prompt_too_long")))
    assert body["error"]["message"] == "prompt is too long: 70 tokens > 64 maximum"
