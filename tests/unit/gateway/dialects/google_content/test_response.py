"""Answers of Google's `generateContent`, read by the vendor's own models."""

import struct
from dataclasses import replace
from typing import Any

import orjson
import pytest
from google.genai.types import GenerateContentResponse

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta
from seamlessflow.producers.gateway.dialects.google_content.members import signature
from seamlessflow.producers.gateway.dialects.google_content.request import AnswerForm, parse
from seamlessflow.producers.gateway.dialects.google_content.response import (
    ContentEvents,
    completion,
    error_body,
)
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import ReplyFinished
from seamlessflow.schemas.tokens import pack
from tests.builders.records import replies

CALL = {"id": "call_t_0", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
OTHER = {"id": "call_t_1", "type": "function", "function": {"name": "g", "arguments": "[1]"}}


def request(form: AnswerForm = "whole", **config: Any) -> CanonicalRequest:
    body = {"contents": [{"parts": [{"text": "x"}]}], "generationConfig": config}
    return parse(orjson.dumps(body), 4, "m", form)


def finished(reason: str = "stop", **message: Any) -> ReplyFinished:
    return replies.finished(
        message=orjson.dumps({"role": "assistant", **message}),
        finish_reason=reason,
        prompt_tokens=5,
        completion_tokens=3,
    )


def answered(*answers: ReplyFinished, **config: Any) -> Any:
    body = orjson.loads(completion("t", 1, request(**config), answers))
    GenerateContentResponse.model_validate(body)
    return body


def parts(answer: ReplyFinished, **config: Any) -> Any:
    return answered(answer, **config)["candidates"][0]["content"]["parts"]


def streamed(
    form: AnswerForm, *deltas: dict[str, Any], failed: bool = False, **config: Any
) -> bytes:
    events = ContentEvents("t", 1, request(form, **config))
    data = events.open(5) + events.keep_alive()
    data += b"".join(events.delta(0, ChoiceDelta(orjson.dumps(delta))) for delta in deltas)
    if failed:
        return data + events.failed(ApiError(504, "too late", code="deadline"))
    answer = finished(content="")
    return data + events.finish(0, answer) + events.end([answer])


def in_events(data: bytes) -> list[Any]:
    return [
        orjson.loads(line.removeprefix(b"data: ")) for line in data.split(b"\n\n") if line.strip()
    ]


def test_an_answer_is_a_candidate() -> None:
    body = answered(finished(content="hello"))
    assert body == {
        "candidates": [
            {
                "content": {"parts": [{"text": "hello"}], "role": "model"},
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 5,
            "candidatesTokenCount": 3,
            "totalTokenCount": 8,
        },
        "modelVersion": "m",
        "responseId": "t",
    }


def test_several_candidates_share_one_prompt() -> None:
    body = answered(finished(content="a"), finished(content="b"))
    assert [candidate["index"] for candidate in body["candidates"]] == [0, 1]
    assert body["usageMetadata"]["totalTokenCount"] == 5 + 3 + 3


@pytest.mark.parametrize(
    ("reason", "read_as"), [("stop", "STOP"), ("length", "MAX_TOKENS"), ("tool_calls", "STOP")]
)
def test_why_it_ended_is_told(reason: str, read_as: str) -> None:
    assert answered(finished(reason, content="x"))["candidates"][0]["finishReason"] == read_as


def test_calls_are_parts_and_arguments_that_are_no_object_are_wrapped() -> None:
    answer = finished("tool_calls", content=None, tool_calls=[CALL, OTHER])
    assert parts(answer) == [
        {"functionCall": {"id": "call_t_0", "name": "f", "args": {"a": 1}}},
        {"functionCall": {"id": "call_t_1", "name": "g", "args": {"$arguments": "[1]"}}},
    ]


def test_a_thought_is_shown_where_it_is_asked_for_and_signed_in_any_case() -> None:
    answer = finished(content="so", reasoning_content="hm")
    said = {"text": "so", "thoughtSignature": signature("hm")}
    assert parts(answer) == [said]
    shown = parts(answer, thinkingConfig={"includeThoughts": True})
    assert shown == [{"text": "hm", "thought": True}, said]


def test_tokens_of_thoughts_are_counted_apart_where_they_are_known() -> None:
    usage = answered(replace(finished(content="x"), reasoning_tokens=2))["usageMetadata"]
    assert (usage["candidatesTokenCount"], usage["thoughtsTokenCount"]) == (1, 2)
    assert usage["totalTokenCount"] == 8


def test_an_answer_without_anything_has_an_empty_text() -> None:
    assert parts(finished(content=None)) == [{"text": ""}]


def test_log_probs_are_told_by_token_id() -> None:
    values = struct.pack("<2f", -0.5, -1.5)
    answer = replace(finished(content="x"), token_ids=pack([7, 8]), logprobs=values)
    candidate = answered(answer, responseLogprobs=True)["candidates"][0]
    assert candidate["avgLogprobs"] == -1.0
    assert candidate["logprobsResult"] == {
        "chosenCandidates": [
            {"token": "token_id:7", "tokenId": 7, "logProbability": -0.5},
            {"token": "token_id:8", "tokenId": 8, "logProbability": -1.5},
        ],
        "logProbabilitySum": -2.0,
    }


def test_a_stream_is_responses_that_add_up() -> None:
    responses = in_events(
        streamed(
            "events",
            {"reasoning_content": "hm"},
            {"content": "he"},
            {"content": "llo"},
            {"tool_calls": [{"index": 0, **CALL}]},
        )
    )
    said = [response["candidates"][0]["content"]["parts"] for response in responses]
    assert said == [
        [{"text": "he"}],
        [{"text": "llo"}],
        [
            {
                "functionCall": {"id": "call_t_0", "name": "f", "args": {"a": 1}},
                "thoughtSignature": signature("hm"),
            }
        ],
        [{"text": ""}],
    ]
    assert [response.get("usageMetadata", {}).get("totalTokenCount") for response in responses] == [
        None,
        None,
        None,
        8,
    ]
    assert responses[-1]["candidates"][0]["finishReason"] == "STOP"


def test_without_server_sent_events_a_stream_is_one_array() -> None:
    data = streamed("array", {"content": "he"}, {"content": "llo"})
    responses = orjson.loads(data)
    assert [response["candidates"][0]["content"]["parts"][0]["text"] for response in responses] == [
        "he",
        "llo",
        "",
    ]
    assert (
        orjson.loads(streamed("array", {"content": "he"}, failed=True))[1]["error"]["code"] == 504
    )
    assert orjson.loads(streamed("array", failed=True))[0]["error"]["status"] == "DEADLINE_EXCEEDED"


def test_a_stream_that_fails_ends_with_an_error() -> None:
    *_, last = in_events(streamed("events", {"content": "he"}, failed=True))
    assert last["error"]["status"] == "DEADLINE_EXCEEDED"


def test_an_event_is_one_line_whatever_was_sampled() -> None:
    call = {**CALL, "function": {"name": "f", "arguments": '{\n "a":\r\n "\u2028"}'}}
    data = streamed("events", {"content": "a\x85\u2029"}, {"tool_calls": [{"index": 0, **call}]})
    lines = data.decode().splitlines()
    assert all(line == "" or line.startswith("data: ") for line in lines)
    said = [response["candidates"][0]["content"]["parts"][0] for response in in_events(data)]
    assert said[0] == {"text": "a\x85\u2029"}
    assert said[1]["functionCall"]["args"] == {"a": "\u2028"}


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHENTICATED"),
        (403, "PERMISSION_DENIED"),
        (404, "NOT_FOUND"),
        (409, "ABORTED"),
        (413, "INVALID_ARGUMENT"),
        (429, "RESOURCE_EXHAUSTED"),
        (500, "INTERNAL"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
    ],
)
def test_an_error_has_the_vendors_status(status: int, name: str) -> None:
    error = orjson.loads(error_body(ApiError(status, "in words", code="c", param="p")))["error"]
    assert (error["code"], error["message"], error["status"]) == (status, "in words", name)
    reason, violation = error["details"]
    assert reason["reason"] == "c"
    assert violation["fieldViolations"] == [{"field": "p", "description": "in words"}]


def test_a_prompt_that_is_too_long_is_told_in_the_vendors_words() -> None:
    detail = "the prompt has 70 tokens, the context holds 64"
    error = orjson.loads(error_body(ApiError(400, detail, code="prompt_too_long")))["error"]
    assert error["message"] == (
        "The input token count (70) exceeds the maximum number of tokens allowed (64)."
    )
