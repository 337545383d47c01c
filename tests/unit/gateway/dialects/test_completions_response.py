import struct
from typing import Any

import orjson

from producers.gateway.dialects.canonical import CanonicalRequest
from producers.gateway.dialects.completions_request import parse
from producers.gateway.dialects.completions_response import Completions, completion
from producers.gateway.dialects.dialect import Piece
from schemas.records import ReplyFinished, TokenTensor


def request(**more: Any) -> CanonicalRequest:
    return parse(orjson.dumps({"model": "m", "prompt": "x", **more}), 4)


def answer(**fields: Any) -> ReplyFinished:
    given: dict[str, Any] = {
        "gateway": "g",
        "session_id": "s",
        "turn_id": "t",
        "message": b'{"role":"assistant","content":" upon"}',
        "finish_reason": "length",
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "version": 7,
    }
    return ReplyFinished(**{**given, **fields})


def scored(*tokens: int, first: int = 0) -> dict[str, Any]:
    """Tokens whose log-probs are minus their ids, each beside the token before it."""
    ids = struct.pack(f"<{len(tokens)}i", *tokens)
    logprobs = struct.pack(f"<{len(tokens)}f", *(-token for token in tokens))
    place: dict[str, Any] = {"from_token": first, "to_token": first + len(tokens), "dtype": ""}
    before = [token - 1 for token in tokens]
    likeliest = (
        TokenTensor(name="topk_ids", data=struct.pack(f"<{len(tokens)}i", *before), **place),
        TokenTensor(
            name="topk_logprobs",
            data=struct.pack(f"<{len(tokens)}f", *(-token for token in before)),
            **place,
        ),
    )
    return {"token_ids": ids, "logprobs": logprobs, "tensors": likeliest}


def events(data: bytes) -> list[Any]:
    lines = [line.removeprefix(b"data: ") for line in data.split(b"\n\n") if line]
    return [line if line == b"[DONE]" else orjson.loads(line) for line in lines]


def test_an_answer_has_the_sampled_text_and_is_named_after_its_turn() -> None:
    assert orjson.loads(completion("t", 1, request(), [answer()])) == {
        "id": "cmpl-t",
        "object": "text_completion",
        "created": 1,
        "model": "m",
        "choices": [{"text": " upon", "index": 0, "logprobs": None, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        "system_fingerprint": "version-7",
    }


def test_several_choices_are_numbered() -> None:
    body = orjson.loads(completion("t", 1, request(n=2), [answer(), answer(message=None)]))
    assert [(c["index"], c["text"]) for c in body["choices"]] == [(0, " upon"), (1, "")]


def test_logprobs_have_the_shape_of_old() -> None:
    body = orjson.loads(completion("t", 1, request(logprobs=1), [answer(**scored(11, 5))]))
    assert body["choices"][0]["logprobs"] == {
        "tokens": ["token_id:11", "token_id:5"],
        "token_logprobs": [-11.0, -5.0],
        "top_logprobs": [
            {"token_id:10": -10.0, "token_id:11": -11.0},
            {"token_id:4": -4.0, "token_id:5": -5.0},
        ],
        "text_offset": [0, 11],
    }


def test_without_likeliest_tokens_there_are_only_the_sampled() -> None:
    body = orjson.loads(completion("t", 1, request(logprobs=0), [answer(**scored(11))]))
    assert body["choices"][0]["logprobs"]["top_logprobs"] is None
    assert body["choices"][0]["logprobs"]["token_logprobs"] == [-11.0]


def test_a_stream_gives_text_then_the_reason_then_the_usage() -> None:
    asked = request(stream=True, stream_options={"include_usage": True})
    stream = Completions("t", 1, asked)
    data = stream.open(3) + stream.delta(0, Piece(b'{"content":" u"}'))
    data += stream.delta(0, Piece(b"{}")) + stream.delta(0, Piece(b'{"content":"pon"}'))
    data += stream.finish(0, answer()) + stream.end([answer()])
    *texts, end, usage, done = events(data)
    assert done == b"[DONE]"
    assert [event["choices"][0]["text"] for event in texts] == [" u", "pon"]
    assert end["choices"] == [{"text": "", "index": 0, "logprobs": None, "finish_reason": "length"}]
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 5)
    assert {(event["id"], event["object"]) for event in (*texts, end, usage)} == {
        ("cmpl-t", "text_completion")
    }


def test_streamed_offsets_go_on_for_each_choice() -> None:
    stream = Completions("t", 1, request(stream=True, n=2, logprobs=1))
    offsets = []
    for choice, first, token in ((0, 0, 11), (1, 0, 5), (0, 1, 6)):
        tokens = scored(token, first=first)
        (event,) = events(stream.delta(choice, Piece(b"{}", from_token=first, **tokens)))
        shown = event["choices"][0]["logprobs"]
        assert shown["top_logprobs"] == [
            {f"token_id:{token - 1}": float(1 - token), f"token_id:{token}": float(-token)}
        ]
        offsets.append((event["choices"][0]["index"], *shown["text_offset"]))
    assert offsets == [(0, 0), (1, 0), (0, 11)]
