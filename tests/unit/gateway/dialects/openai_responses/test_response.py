"""Answers of the Responses dialect, each checked with the official client's own models."""

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from openai.types.responses import Response

from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta
from seamlessflow.producers.gateway.dialects.openai_responses.request import parse
from seamlessflow.producers.gateway.dialects.openai_responses.response import ResponseEvents
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import TokenTensor
from tests.builders.gateway.openai_responses_answers import (
    ENCRYPTED,
    LOGPROBS,
    TOOLS,
    call,
    events,
    request,
    streamed,
    whole,
)
from tests.builders.records.replies import answer
from tests.paths import CODEX_REQUEST

CODEX = CODEX_REQUEST.read_bytes()


def test_an_answer_is_a_response_named_after_its_turn() -> None:
    body = whole(answer())
    assert (body["id"], body["object"], body["status"]) == ("resp_t", "response", "completed")
    assert (body["created_at"], body["model"], body["error"]) == (1, "m", None)
    part = {"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}
    assert body["output"] == [
        {
            "id": "msg_t_0",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [part],
        }
    ]
    usage = body["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (3, 2, 5)


@pytest.mark.parametrize(("sampled", "reported"), [(1, 1), (None, 0)])
def test_tokens_of_thinking_are_told(sampled: int | None, reported: int) -> None:
    thought = answer(reasoning_tokens=sampled)
    for body in (whole(thought), streamed([{"content": "hi"}], thought)[-1]["response"]):
        assert body["usage"]["output_tokens_details"] == {"reasoning_tokens": reported}


def test_an_answer_repeats_what_was_asked() -> None:
    asked: dict[str, Any] = {
        "instructions": "be brief",
        "metadata": {"a": "b"},
        "temperature": 0.5,
        "max_output_tokens": 9,
        "tool_choice": {"type": "function", "name": "lookup"},
        "parallel_tool_calls": False,
        "previous_response_id": "resp_u",
        "prompt_cache_key": "k",
        "reasoning": {"effort": "low"},
    }
    body = whole(answer(), **asked)
    assert {name: body[name] for name in asked} == asked
    assert [tool["type"] for tool in body["tools"]] == [tool["type"] for tool in TOOLS]
    assert "include" not in body


def test_the_first_request_of_codex_is_answered_with_valid_responses() -> None:
    asked = parse(CODEX, 1)
    writer = ResponseEvents("t", 1, asked)
    read = events(writer.open(3) + writer.finish(0, answer()) + writer.end([answer()]))
    for event in (read[0], read[-1]):
        Response.model_validate(event["response"])


def test_an_answer_cut_short_is_incomplete() -> None:
    body = whole(answer(finish_reason="length"))
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert body["output"][0]["status"] == "incomplete"


def test_reasoning_is_an_item_of_its_own_and_encrypted_when_asked_for() -> None:
    thought = answer(message={"reasoning_content": "hm"})
    reasoning, message = whole(thought)["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "hm"}]
    assert (reasoning["summary"], message["type"]) == ([], "message")
    assert "encrypted_content" not in reasoning
    assert "encrypted_content" in whole(thought, **ENCRYPTED)["output"][0]


def test_calls_come_in_the_form_in_which_their_tools_were_offered() -> None:
    calls = [
        call("lookup", '{"a": 1}'),
        call("patch", '{"input": "*** Begin"}', 1),
        call("local_shell", '{"command": ["ls"], "timeout_ms": 5}', 2),
        call("team__spawn", "{}", 3),
        call("unheard_of", "{}", 4),
    ]
    items = whole(answer(None, message={"tool_calls": calls}))["output"]
    assert [item["call_id"] for item in items] == [f"call_t_{n}" for n in range(5)]
    function, custom, shell, grouped, unknown = items
    assert (function["type"], function["arguments"]) == ("function_call", '{"a": 1}')
    assert (custom["type"], custom["input"]) == ("custom_tool_call", "*** Begin")
    assert (shell["type"], shell["action"]["command"]) == ("local_shell_call", ["ls"])
    assert (grouped["name"], grouped["namespace"]) == ("spawn", "team")
    assert (unknown["type"], unknown["name"]) == ("function_call", "unheard_of")


@pytest.mark.parametrize("arguments", ["[]", "{}", '{"input": 1}', '{"input": "\\ud800"}', "no"])
def test_a_custom_tool_gets_malformed_arguments_as_they_are(arguments: str) -> None:
    called = answer(None, message={"tool_calls": [call("patch", arguments)]})
    (item,) = whole(called)["output"]
    assert item["input"] == arguments


@pytest.mark.parametrize("arguments", ["[]", "{}", '{"command": "ls"}', '{"command": [1]}'])
def test_a_malformed_shell_call_is_a_function_call(arguments: str) -> None:
    shell = call("local_shell", arguments)
    (item,) = whole(answer(None, message={"tool_calls": [shell]}))["output"]
    assert (item["type"], item["arguments"]) == ("function_call", arguments)
    delta = {"tool_calls": [{"index": 0, **shell}]}
    read = streamed([delta], answer(None, message={"tool_calls": [shell]}))
    assert read[-1]["response"]["output"] == [item]


def test_logprobs_name_tokens_by_id_when_asked_for() -> None:
    scored = answer(
        token_ids=struct.pack("<2i", 11, 12),
        logprobs=struct.pack("<2f", -0.5, -1),
        tensors=[tensor("topk_ids", "i", 5, 6, 7, 8), tensor("topk_logprobs", "f", -1, -2, -3, -4)],
    )
    part = whole(scored, **LOGPROBS, top_logprobs=2)["output"][0]["content"][0]
    assert [(token["token"], token["logprob"]) for token in part["logprobs"]] == [
        ("token_id:11", -0.5),
        ("token_id:12", -1.0),
    ]
    assert [top["token"] for top in part["logprobs"][1]["top_logprobs"]] == [
        "token_id:7",
        "token_id:8",
    ]
    assert whole(scored)["output"][0]["content"][0]["logprobs"] == []


def tensor(name: str, kind: str, *values: float) -> TokenTensor:
    data = struct.pack(f"<4{kind}", *values)
    return TokenTensor(name=name, from_token=0, to_token=2, dtype=kind, shape=(2, 2), data=data)


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
        [entry["token"] for entry in event["logprobs"]]
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
