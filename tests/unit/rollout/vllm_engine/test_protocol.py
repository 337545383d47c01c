"""Requests to vLLM and the parsing of its answers, which were taken from vLLM 0.32."""

from typing import Any

import numpy as np
import orjson
import pytest

from seamlessflow.producers.rollout.engine.contract import SamplingParams
from seamlessflow.producers.rollout.vllm_engine.protocol import (
    AnswerInvalid,
    EventSplitter,
    RequestRefused,
    explanation,
    generate,
    token_event,
)

TWO = [
    {"token_id": 7, "logprob": -0.25, "rank": 1, "top_logprobs": []},
    {"token_id": 9, "logprob": -2.5, "rank": 4, "top_logprobs": []},
]


def event(content: list[dict[str, Any]], **changes: Any) -> bytes:
    choice = {
        "index": 0,
        "finish_reason": None,
        "token_ids": [entry["token_id"] for entry in content],
        "weight_versions": None,
        "logprobs": {"content": content},
    }
    return orjson.dumps({"request_id": "r", "usage": None, "choices": [{**choice, **changes}]})


def said(sampling: SamplingParams, completed: int = 0, room: int = 100) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(generate("r.1", [1, 2, 3], completed, room, sampling, "v"))
    return body


def test_a_call_says_how_to_sample_and_leaves_nothing_to_the_model_s_own_defaults() -> None:
    body = said(SamplingParams(50, 0.7, 0.9, 40, stop_token_ids=(3, 4)))
    assert (body["request_id"], body["token_ids"], body["cache_salt"]) == ("r.1", [1, 2, 3], "v")
    assert body["stream"]
    assert body["sampling_params"] == {
        "max_tokens": 50,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop_token_ids": [3, 4],
        "ignore_eos": True,
        "detokenize": False,
        "logprobs": 0,
    }


@pytest.mark.parametrize(("completed", "room", "rest"), [(0, 100, 50), (20, 100, 30), (0, 9, 9)])
def test_the_rest_is_asked_for(completed: int, room: int, rest: int) -> None:
    assert said(SamplingParams(50), completed, room)["sampling_params"]["max_tokens"] == rest


def test_a_continuation_draws_by_another_seed_than_the_beginning() -> None:
    seeds = [said(SamplingParams(50, seed=5), n)["sampling_params"]["seed"] for n in (0, 10)]
    assert seeds == [5, 15]
    largest = said(SamplingParams(50, seed=2**63 - 1), 10)["sampling_params"]["seed"]
    assert 0 <= largest < 2**63


def test_a_schema_is_passed_on() -> None:
    parameters = said(SamplingParams(50, json_schema='{"type": "object"}'))["sampling_params"]
    assert parameters["structured_outputs"] == {"json": '{"type": "object"}'}


def test_one_more_likely_token_is_asked_for_since_the_sampled_one_is_among_them() -> None:
    assert said(SamplingParams(50, top_logprobs=3))["sampling_params"]["logprobs"] == 4


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_stream_is_read_however_it_is_cut(size: int) -> None:
    stream = b'data: {"a": 1}\n\ndata: {"b": 2}\n\ndata: [DONE]\n\n'
    splitter = EventSplitter()
    parts = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert [each for part in parts for each in splitter.feed(part)] == [b'{"a": 1}', b'{"b": 2}']


def test_tokens_and_log_probabilities() -> None:
    tokens = token_event(event(TWO), 0)
    assert np.frombuffer(tokens.token_ids, "<i4").tolist() == [7, 9]
    assert np.frombuffer(tokens.logprobs, "<f4").tolist() == [-0.25, -2.5]
    assert (tokens.count, tokens.finish_reason, tokens.versions) == (2, None, ())
    assert (tokens.top_ids, tokens.top_logprobs) == (b"", b"")


def test_the_end_says_which_weights_sampled() -> None:
    spans = [{"version": "3", "start": 0, "end": 5}, {"version": "4", "start": 5, "end": 7}]
    tokens = token_event(event(TWO, finish_reason="stop", weight_versions=spans), 0)
    assert (tokens.finish_reason, tokens.versions) == ("stop", ("3", "4"))


def test_an_abort_has_no_tokens() -> None:
    tokens = token_event(event([], finish_reason="abort", weight_versions=[]), 0)
    assert (tokens.count, tokens.finish_reason, tokens.versions) == (0, "abort", ())


@pytest.mark.parametrize(
    "seen",
    [{9: -2.5, 1: -0.5, 2: -1.0}, {1: -0.5, 2: -1.0, 5: -3.0}, {2: -1.0, 1: -0.5, 5: -3.0}],
    ids=["sampled besides", "sampled the first", "sampled the second"],
)
def test_the_most_likely_tokens_come_in_order_whichever_was_sampled(seen: dict[int, float]) -> None:
    sampled = next(iter(seen))
    rows = [{"token_id": token, "logprob": logprob} for token, logprob in seen.items()]
    entry = {"token_id": sampled, "logprob": seen[sampled], "top_logprobs": rows}
    tokens = token_event(event([entry]), 2)
    assert np.frombuffer(tokens.top_ids, "<i4").tolist() == [1, 2]
    assert np.frombuffer(tokens.top_logprobs, "<f4").tolist() == [-0.5, -1.0]


def test_the_usage_says_what_was_computed_before() -> None:
    usage = {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 32}}
    tokens = token_event(orjson.dumps({"choices": [], "usage": usage}), 0)
    assert (tokens.count, tokens.cached_tokens) == (0, 32)
    assert (
        token_event(orjson.dumps({"choices": [], "usage": {"prompt_tokens": 4}}), 0).cached_tokens
        == 0
    )


@pytest.mark.parametrize(
    ("code", "kind"), [(400, RequestRefused), (404, RequestRefused), (500, AnswerInvalid)]
)
def test_an_error_in_a_stream_is_the_request_s_or_the_server_s(
    code: int, kind: type[Exception]
) -> None:
    error = {"message": "Grammar error: Invalid type", "type": "BadRequestError", "code": code}
    with pytest.raises(kind, match="Invalid type"):
        token_event(orjson.dumps({"error": error}), 0)


@pytest.mark.parametrize(
    ("answer", "top"),
    [
        (b"not JSON", 0),
        (b"{}", 0),
        (event(TWO, token_ids=[7]), 0),
        (event(TWO, logprobs=None), 0),
        (event([{"token_id": 7, "logprob": -9999.0, "top_logprobs": []}]), 0),
        (event(TWO), 2),
    ],
    ids=["no JSON", "no choices", "a token too few", "no log-probs", "no probability", "no top"],
)
def test_what_cannot_be_trusted_is_an_error(answer: bytes, top: int) -> None:
    with pytest.raises(AnswerInvalid):
        token_event(answer, top)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"error": {"message": "no such model"}}', "no such model"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b"<html>", "502 <html>"),
    ],
)
def test_a_refused_call_is_explained(body: bytes, shown: str) -> None:
    assert explanation(502, body) == shown
