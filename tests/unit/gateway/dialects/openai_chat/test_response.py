import struct
from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta
from seamlessflow.producers.gateway.dialects.openai_chat.request import parse
from seamlessflow.producers.gateway.dialects.openai_chat.response import ChatEvents, completion
from seamlessflow.producers.gateway.dialects.openai_shape import error_body
from seamlessflow.producers.gateway.errors import ApiError, refused
from seamlessflow.producers.rollout.turns.refusal import too_long
from seamlessflow.schemas.records import ReplyFinished, TokenTensor
from tests.builders.records import replies

MESSAGE = b'{"content":"hi","role":"assistant"}'


def request(**more: Any) -> CanonicalRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **more}
    return parse(orjson.dumps(body), 4)


def answer(**changes: Any) -> ReplyFinished:
    return replies.answer(**{"version": 7, **changes})


def events(data: bytes) -> list[Any]:
    lines = [line.removeprefix(b"data: ") for line in data.split(b"\n\n") if line]
    return [line if line == b"[DONE]" else orjson.loads(line) for line in lines]


def test_an_answer_has_the_sampled_message_and_is_named_after_its_turn() -> None:
    body = orjson.loads(completion("t", 1, request(), [answer()]))
    assert body == {
        "id": "chatcmpl-t",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hi"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        "system_fingerprint": "version-7",
    }


def test_tokens_of_thinking_are_told_where_they_are_known_of_all_choices() -> None:
    counted, unknown = answer(reasoning_tokens=1), answer()
    body = orjson.loads(completion("t", 1, request(n=2), [counted, counted]))
    assert body["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}
    body = orjson.loads(completion("t", 1, request(n=2), [counted, unknown]))
    assert "completion_tokens_details" not in body["usage"]


def test_a_message_of_tool_calls_alone_has_null_content() -> None:
    call = {"id": "call_t_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = orjson.dumps({"role": "assistant", "tool_calls": [call]})
    (choice,) = orjson.loads(completion("t", 1, request(), [answer(message=message)]))["choices"]
    assert choice["message"] == {"role": "assistant", "content": None, "tool_calls": [call]}


def test_several_choices_share_one_prompt() -> None:
    body = orjson.loads(completion("t", 1, request(n=2), [answer(), answer(version=8)]))
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert body["system_fingerprint"] == "version-8"


def test_logprobs_name_tokens_by_id_when_asked_for() -> None:
    scored = answer(
        token_ids=struct.pack("<2i", 11, 12), logprobs=struct.pack("<2f", -0.5, float("-inf"))
    )
    asked = orjson.loads(completion("t", 1, request(logprobs=True), [scored]))
    content = asked["choices"][0]["logprobs"]["content"]
    assert [(c["token"], c["logprob"]) for c in content] == [
        ("token_id:11", -0.5),
        ("token_id:12", -9999.0),
    ]
    plain = orjson.loads(completion("t", 1, request(), [scored]))
    assert plain["choices"][0]["logprobs"] is None


def tensors(first: int, *rows: tuple[int, int]) -> tuple[TokenTensor, TokenTensor]:
    """Return two candidates for each token, with log-probs of minus their ids."""
    ids = [token for row in rows for token in row]
    place: dict[str, Any] = {"from_token": first, "to_token": first + len(rows)}
    place["shape"] = (len(rows), 2)
    packed = struct.pack(f"<{len(ids)}i", *ids)
    scored = struct.pack(f"<{len(ids)}f", *(-token for token in ids))
    return (
        TokenTensor(name="topk_ids", dtype="int32", data=packed, **place),
        TokenTensor(name="topk_logprobs", dtype="float32", data=scored, **place),
    )


def candidates(content: Any) -> list[list[tuple[str, float]]]:
    return [[(t["token"], t["logprob"]) for t in token["top_logprobs"]] for token in content]


def test_the_likeliest_tokens_stand_with_each_sampled_one() -> None:
    scored = answer(
        token_ids=struct.pack("<3i", 1, 2, 3),
        logprobs=struct.pack("<3f", -1, -2, -3),
        tensors=(*tensors(0, (1, 4), (2, 5)), *tensors(2, (3, 6))),
    )
    asked = request(logprobs=True, top_logprobs=2)
    (choice,) = orjson.loads(completion("t", 1, asked, [scored]))["choices"]
    assert candidates(choice["logprobs"]["content"]) == [
        [("token_id:1", -1.0), ("token_id:4", -4.0)],
        [("token_id:2", -2.0), ("token_id:5", -5.0)],
        [("token_id:3", -3.0), ("token_id:6", -6.0)],
    ]
    fewer = request(logprobs=True, top_logprobs=1)
    (choice,) = orjson.loads(completion("t", 1, fewer, [scored]))["choices"]
    assert {len(row) for row in candidates(choice["logprobs"]["content"])} == {1}


def test_streamed_tokens_come_with_the_likeliest_in_their_place() -> None:
    asked = request(stream=True, logprobs=True, top_logprobs=2)
    ids, logprobs = struct.pack("<i", 7), struct.pack("<f", -0.5)
    piece = ChoiceDelta(b'{"content":"a"}', ids, logprobs, tensors(4, (8, 9), (1, 2)), 5)
    *_, event = events(ChatEvents("t", 1, asked).delta(0, piece))
    content = event["choices"][0]["logprobs"]["content"]
    assert candidates(content) == [[("token_id:1", -1.0), ("token_id:2", -2.0)]]


def test_a_stream_says_who_speaks_once_and_ends_with_done() -> None:
    chunks = ChatEvents("t", 1, request(stream=True))
    data = chunks.delta(0, ChoiceDelta(b'{"content":"a"}'))
    data += chunks.delta(0, ChoiceDelta(b'{"content":"b"}'))
    data += chunks.finish(0, answer()) + chunks.end([answer()])
    *read, done = events(data)
    assert done == b"[DONE]"
    assert [event["choices"][0]["delta"] for event in read] == [
        {"role": "assistant", "content": ""},
        {"content": "a"},
        {"content": "b"},
        {},
    ]
    assert [event["choices"][0]["finish_reason"] for event in read] == [None] * 3 + ["stop"]
    assert {(event["id"], event["object"], event["model"]) for event in read} == {
        ("chatcmpl-t", "chat.completion.chunk", "m")
    }


def test_a_stream_ends_with_usage_when_asked_for() -> None:
    asked = request(stream=True, stream_options={"include_usage": True})
    chunks = ChatEvents("t", 1, asked)
    data = chunks.delta(0, ChoiceDelta(b'{"content":"a"}')) + chunks.finish(0, answer())
    *before, usage, _ = events(data + chunks.end([answer()]))
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 5
    assert [event["usage"] for event in before] == [None] * 3


def test_streamed_tool_calls_get_their_type_where_they_begin() -> None:
    first = {"index": 0, "id": "call_t_0", "function": {"name": "f", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": "{}"}}
    chunks = ChatEvents("t", 1, request(stream=True))
    data = chunks.delta(0, ChoiceDelta(orjson.dumps({"tool_calls": [first]})))
    data += chunks.delta(0, ChoiceDelta(orjson.dumps({"tool_calls": [more]})))
    _, begun, rest = events(data)
    assert begun["choices"][0]["delta"]["tool_calls"] == [{**first, "type": "function"}]
    assert rest["choices"][0]["delta"]["tool_calls"] == [more]


def test_streamed_logprobs_are_those_of_the_delta() -> None:
    chunks = ChatEvents("t", 1, request(stream=True, logprobs=True))
    ids, logprobs = struct.pack("<i", 5), struct.pack("<f", -1.0)
    *_, event = events(chunks.delta(0, ChoiceDelta(b'{"content":"a"}', ids, logprobs)))
    assert event["choices"][0]["logprobs"]["content"][0]["token"] == "token_id:5"


def test_errors_have_the_shape_of_openai() -> None:
    error = ApiError(400, "n must be 1", code="invalid_value", param="n")
    assert orjson.loads(error_body(error)) == {
        "error": {
            "message": "n must be 1",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_value",
        }
    }


@pytest.mark.parametrize(
    "detail",
    [
        too_long(9, 8).detail,
        "the prompt has 9 tokens, the context holds 8 with the answer",
    ],
    ids=["of the worker", "of the manager"],
)
def test_a_prompt_that_is_too_long_is_refused_in_the_words_of_openai(detail: str) -> None:
    refusal = orjson.loads(error_body(refused(400, "prompt_too_long", detail)))["error"]
    assert refusal["code"] == "context_length_exceeded"
    assert refusal["type"] == "invalid_request_error"
    assert refusal["message"] == (
        "This model's maximum context length is 8 tokens. However, your messages resulted in "
        "9 tokens. Please reduce the length of the messages."
    )


def test_an_error_does_not_repeat_all_of_what_was_wrong() -> None:
    error = ApiError(400, "x" * 1_000_000, param="y" * 1_000_000)
    assert len(error_body(error)) < 5000


def test_what_the_manager_refuses_keeps_its_status_and_reason() -> None:
    error = refused(409, "session_closed", "")
    assert (error.status, error.code, error.message) == (409, "session_closed", "session_closed")
    assert (b"x-should-retry", b"false") in error.headers


def test_a_status_that_is_none_of_an_error_becomes_500() -> None:
    assert refused(0, "", "").status == 500
    assert refused(200, "", "").status == 500


def test_a_retry_that_waited_for_a_cancelled_turn_is_asked_to_come_again() -> None:
    error = refused(499, "cancelled", "client_gone")
    assert error.status == 503
    assert (b"retry-after", b"1") in error.headers
