"""Streams of the Responses dialect, each event checked with the official client's own models."""

import struct
from collections.abc import Sequence
from typing import Any

import pytest

from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta
from seamlessflow.producers.gateway.dialects.openai_responses.events import ResponseEvents
from seamlessflow.producers.gateway.errors import ApiError
from tests.builders.gateway.openai_responses_answers import (
    ENCRYPTED,
    LOGPROBS,
    call,
    events,
    request,
    streamed,
    whole,
)
from tests.builders.records.replies import answer


def kinds(read: Sequence[Any]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in read]


def test_text_is_streamed_as_it_comes() -> None:
    read = streamed([{"content": "h"}, {"content": "i"}])
    assert kinds(read) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["delta"] for event in read[4:6]] == ["h", "i"]
    assert read[6]["text"] == read[7]["part"]["text"] == "hi"
    assert read[-1]["response"] == whole(answer(), stream=True)


def test_reasoning_is_streamed_before_text() -> None:
    thought = answer(message={"reasoning_content": "hm"})
    read = streamed(
        [{"reasoning_content": "h"}, {"reasoning_content": "m", "content": "hi"}], thought
    )
    assert kinds(read)[2:9] == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
    ]
    assert [event.get("output_index") for event in read[2:-1]] == [0] * 7 + [1] * 6
    assert read[-1]["response"] == whole(thought, stream=True)


def test_encrypted_reasoning_comes_when_the_item_is_done() -> None:
    thought = answer(message={"reasoning_content": "hm"})
    read = streamed([{"reasoning_content": "hm"}, {"content": "hi"}], thought, **ENCRYPTED)
    assert "encrypted_content" not in read[2]["item"]
    assert "encrypted_content" in read[-1]["response"]["output"][0]


def test_a_function_call_is_streamed_as_it_comes() -> None:
    made = call("lookup", '{"a": 1}')
    first = {"index": 0, "id": made["id"], "function": {"name": "lookup", "arguments": '{"a"'}}
    more = {"index": 0, "function": {"arguments": ": 1}"}}
    called = answer(None, message={"tool_calls": [made]})
    read = streamed([{"tool_calls": [first]}, {"tool_calls": [more]}], called)
    assert kinds(read)[2:-1] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert (read[2]["item"]["arguments"], read[5]["arguments"]) == ("", '{"a": 1}')
    assert read[-1]["response"] == whole(called, stream=True)


def test_a_custom_call_is_streamed_when_it_is_whole() -> None:
    made = call("patch", '{"input": "*** Begin"}')
    called = answer(None, message={"tool_calls": [made]})
    read = streamed([{"tool_calls": [{"index": 0, **made}]}], called)
    assert kinds(read)[2:-1] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]
    assert (read[2]["item"]["input"], read[3]["delta"]) == ("", "*** Begin")
    assert read[-1]["response"] == whole(called, stream=True)


def test_text_behind_a_call_is_a_message_of_its_own() -> None:
    shell = call("local_shell", '{"command": ["ls"]}')
    deltas: list[Any] = [
        {"content": "a"},
        {"tool_calls": [{"index": 0, **shell}]},
        {"content": "b"},
    ]
    read = streamed(deltas, answer("ab", message={"tool_calls": [shell]}))
    items = read[-1]["response"]["output"]
    assert [item["type"] for item in items] == ["message", "local_shell_call", "message"]
    assert len({item["id"] for item in items}) == 3
    done = [event["item"] for event in read if event["type"] == "response.output_item.done"]
    assert done == items


@pytest.mark.parametrize("deltas", [[], [{}], [{"reasoning_content": "hm"}]])
def test_an_answer_without_text_or_calls_has_an_empty_message(deltas: list[Any]) -> None:
    thought = {"reasoning_content": "hm"} if any(deltas) else {}
    empty = answer("", message=thought)
    read = streamed(deltas, empty)
    assert read[-1]["response"] == whole(empty, stream=True)
    assert read[-1]["response"]["output"][-1]["content"][0]["text"] == ""


def test_a_stream_cut_short_ends_incomplete() -> None:
    cut = answer(finish_reason="length")
    read = streamed([{"content": "hi"}], cut)
    assert read[-1]["type"] == "response.incomplete"
    assert read[-1]["response"] == whole(cut, stream=True)


def test_streamed_logprobs_are_all_there_once() -> None:
    writer = ResponseEvents("t", 1, request(stream=True, **LOGPROBS))
    score = struct.pack("<f", -1)
    data = writer.open(3)
    for token, delta in enumerate((b"{}", b'{"content":"hi"}', b"{}")):
        data += writer.delta(0, ChoiceDelta(delta, struct.pack("<i", token), score, (), token))
    read = events(data + writer.finish(0, answer()) + writer.end([answer()]))
    by_delta = [
        [one["token"] for one in event["logprobs"]]
        for event in read
        if event["type"] == "response.output_text.delta"
    ]
    assert by_delta == [["token_id:0", "token_id:1"], ["token_id:2"]]
    done = next(event for event in read if event["type"] == "response.output_text.done")
    assert len(done["logprobs"]) == 3


def test_a_stream_that_fails_says_so_twice_and_keeps_what_was_whole() -> None:
    writer = ResponseEvents("t", 1, request(stream=True))
    data = writer.open(3) + writer.delta(0, ChoiceDelta(b'{"reasoning_content":"hm"}'))
    data += writer.delta(0, ChoiceDelta(b'{"content":"h"}'))
    error = ApiError(504, "too late", code="deadline")
    *_, flat, failed = events(data + writer.failed(error))
    assert (flat["type"], flat["code"], flat["message"]) == ("error", "deadline", "too late")
    assert flat["error"]["type"] == "timeout_error"
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "server_error", "message": "too late"}
    assert [item["type"] for item in failed["response"]["output"]] == ["reasoning"]


def test_a_stream_that_fails_before_it_was_opened_is_opened() -> None:
    writer = ResponseEvents("t", 1, request(stream=True))
    read = events(writer.keep_alive() + writer.failed(ApiError(504, "too late")))
    assert kinds(read) == ["created", "in_progress", "error", "failed"]


def test_more_of_a_call_that_has_ended_is_an_error() -> None:
    writer = ResponseEvents("t", 1, request(stream=True))
    with pytest.raises(ValueError, match="call 0 of t"):
        writer.delta(0, ChoiceDelta(b'{"tool_calls":[{"index":0,"function":{"arguments":"x"}}]}'))


def test_to_keep_a_connection_alive_is_a_comment() -> None:
    assert ResponseEvents("t", 1, request()).keep_alive().startswith(b":")
