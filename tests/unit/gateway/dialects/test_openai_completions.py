import struct
from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.dialect import ChoiceDelta
from seamlessflow.producers.gateway.dialects.openai_completions import (
    CompletionEvents,
    completion,
    parse,
)
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.schemas.records import ReplyFinished, Sampling, TokenTensor
from tests.builders.records import replies


def parsed(prompt: Any = "once", **request: Any) -> CanonicalRequest:
    return parse(orjson.dumps({"model": "m", "prompt": prompt, **request}), 4)


def refusal(prompt: Any = "once", **request: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        parsed(prompt, **request)
    assert error.value.status == 400
    return error.value


def answer(**changes: Any) -> ReplyFinished:
    return replies.answer(" upon", **{"finish_reason": "length", "version": 7, **changes})


def scored(*tokens: int, first: int = 0) -> dict[str, Any]:
    """Return tokens whose log-probs are minus their ids, each with the previous id as candidate."""
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


def test_a_plain_request_takes_the_text_as_it_is() -> None:
    request = parsed()
    assert request.messages == (b'{"content":"once","role":"raw"}',)
    assert request.raw and request.dialect == "openai.completions"
    assert request.sampling == Sampling(max_tokens=16)
    assert (request.tools, request.template_args, request.choices) == (None, None, 1)
    assert not request.stream and not request.include_usage and not request.wants_logprobs


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (["once"], b'{"content":"once","role":"raw"}'),
        ([5, 0, 2**31 - 1], b'{"ids":[5,0,2147483647],"role":"raw"}'),
        ([[5, 6]], b'{"ids":[5,6],"role":"raw"}'),
    ],
)
def test_a_prompt_is_one_text_or_one_list_of_ids(prompt: Any, message: bytes) -> None:
    assert parsed(prompt).messages == (message,)


@pytest.mark.parametrize("prompt", ["", [], [""], [[]], None, 1, {}, [None], [{}], [[1], "a"]])
def test_what_is_no_prompt_is_refused(prompt: Any) -> None:
    assert refusal(prompt).param == "prompt"


@pytest.mark.parametrize("prompt", [["a", "b"], [[1], [2]], ["a", [1]]])
def test_several_prompts_are_several_calls(prompt: Any) -> None:
    assert refusal(prompt).message == "prompt holds 2 prompts: one call takes one"


@pytest.mark.parametrize("wrong", [-1, 2**31, 1.5, True, "a", None, []])
def test_a_wrong_token_id_is_named_by_its_place(wrong: Any) -> None:
    error = refusal([7, wrong])
    assert (error.param, error.message) == ("prompt", "prompt has no token id at place 1")


def test_sampling_parameters_are_taken_over() -> None:
    request = parsed(
        n=2, max_tokens=3, temperature=1, top_p=0.5, seed=5, stop=["a", "b"], presence_penalty=1
    )
    assert request.choices == 2
    assert request.sampling == Sampling(
        max_tokens=3, temperature=1, top_p=0.5, seed=5, stop=("a", "b"), presence_penalty=1
    )


def test_logprobs_say_how_many_likeliest_tokens_are_wanted() -> None:
    assert parsed(logprobs=3).wants_logprobs
    assert parsed(logprobs=3).sampling.top_logprobs == 3
    assert parsed(logprobs=0).wants_logprobs
    assert parsed(logprobs=0).sampling.top_logprobs == 0


def test_usage_is_asked_for_only_with_a_stream() -> None:
    assert parsed(stream=True, stream_options={"include_usage": True}).include_usage
    assert not parsed(stream_options={"include_usage": True}).include_usage


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", 1),
        ("logprobs", 6),
        ("logprobs", True),
        ("max_tokens", 0),
        ("n", 5),
        ("echo", True),
        ("echo", 1),
        ("suffix", "end"),
        ("best_of", 2),
        ("stream", "yes"),
        ("stream_options", []),
        ("temperature", 3),
        ("logit_bias", {"x": 1}),
        ("max_completion_tokens", 3),
    ],
)
def test_a_wrong_parameter_is_named(name: str, value: Any) -> None:
    assert refusal(**{name: value}).param == name


def test_scoring_a_prompt_is_refused_in_words() -> None:
    error = refusal(echo=True, max_tokens=0, logprobs=1)
    assert error.message == "echo is not supported: prompts are neither repeated nor scored"


@pytest.mark.parametrize(
    "harmless",
    [{"user": "u"}, {"echo": False, "best_of": 1, "suffix": ""}, {"suffix": None, "x": 1}],
)
def test_parameters_without_effect_are_ignored(harmless: dict[str, Any]) -> None:
    assert parsed(**harmless) == parsed()


def test_the_same_text_as_a_chat_message_is_another_request() -> None:
    assert parsed("a").body_hashes() != parsed([1]).body_hashes()
    assert len({*parsed("a").body_hashes(), *parsed("b").body_hashes()}) == 2


def test_an_answer_has_the_sampled_text_and_is_named_after_its_turn() -> None:
    assert orjson.loads(completion("t", 1, parsed(), [answer()])) == {
        "id": "cmpl-t",
        "object": "text_completion",
        "created": 1,
        "model": "m",
        "choices": [{"text": " upon", "index": 0, "logprobs": None, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        "system_fingerprint": "version-7",
    }


def test_several_choices_are_numbered() -> None:
    body = orjson.loads(completion("t", 1, parsed(n=2), [answer(), answer(message=None)]))
    assert [(c["index"], c["text"]) for c in body["choices"]] == [(0, " upon"), (1, "")]


def test_logprobs_have_the_shape_of_old() -> None:
    body = orjson.loads(completion("t", 1, parsed(logprobs=1), [answer(**scored(11, 5))]))
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
    body = orjson.loads(completion("t", 1, parsed(logprobs=0), [answer(**scored(11))]))
    assert body["choices"][0]["logprobs"]["top_logprobs"] is None
    assert body["choices"][0]["logprobs"]["token_logprobs"] == [-11.0]


def test_a_stream_gives_text_then_the_reason_then_the_usage() -> None:
    asked = parsed(stream=True, stream_options={"include_usage": True})
    stream = CompletionEvents("t", 1, asked)
    data = stream.open(3) + stream.delta(0, ChoiceDelta(b'{"content":" u"}'))
    data += stream.delta(0, ChoiceDelta(b"{}")) + stream.delta(0, ChoiceDelta(b'{"content":"pon"}'))
    data += stream.finish(0, answer()) + stream.end([answer()])
    *texts, end, usage, done = events(data)
    assert done == b"[DONE]"
    assert [event["choices"][0]["text"] for event in texts] == [" u", "pon"]
    assert end["choices"] == [{"text": "", "index": 0, "logprobs": None, "finish_reason": "length"}]
    assert (usage["choices"], usage["usage"]["total_tokens"]) == ([], 5)
    assert [event["usage"] for event in (*texts, end)] == [None] * 3
    assert {(event["id"], event["object"]) for event in (*texts, end, usage)} == {
        ("cmpl-t", "text_completion")
    }


def test_streamed_offsets_go_on_for_each_choice() -> None:
    stream = CompletionEvents("t", 1, parsed(stream=True, n=2, logprobs=1))
    offsets = []
    for choice, first, token in ((0, 0, 11), (1, 0, 5), (0, 1, 6)):
        tokens = scored(token, first=first)
        (event,) = events(stream.delta(choice, ChoiceDelta(b"{}", from_token=first, **tokens)))
        shown = event["choices"][0]["logprobs"]
        assert shown["top_logprobs"] == [
            {f"token_id:{token - 1}": float(1 - token), f"token_id:{token}": float(-token)}
        ]
        offsets.append((event["choices"][0]["index"], *shown["text_offset"]))
    assert offsets == [(0, 0), (1, 0), (0, 11)]
