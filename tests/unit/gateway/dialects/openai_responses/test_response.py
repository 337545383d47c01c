"""Answers of the Responses dialect, each checked with the official client's own models."""

import struct
from typing import Any

import pytest
from openai.types.responses import Response

from seamlessflow.producers.gateway.dialects.openai_responses.events import ResponseEvents
from seamlessflow.producers.gateway.dialects.openai_responses.request import parse
from seamlessflow.schemas.records import TokenTensor
from tests.builders.gateway.openai_responses_answers import (
    ENCRYPTED,
    LOGPROBS,
    TOOLS,
    call,
    events,
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


@pytest.mark.parametrize(("known", "told"), [(1, 1), (None, 0)])
def test_tokens_of_thinking_are_told(known: int | None, told: int) -> None:
    thought = answer(reasoning_tokens=known)
    for body in (whole(thought), streamed([{"content": "hi"}], thought)[-1]["response"]):
        assert body["usage"]["output_tokens_details"] == {"reasoning_tokens": told}


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
    assert [(one["token"], one["logprob"]) for one in part["logprobs"]] == [
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
