from typing import Any

import orjson
import pytest

from producers.gateway.dialects.canonical import CanonicalRequest
from producers.gateway.dialects.completions_request import parse
from producers.gateway.errors import ApiError
from schemas.records import Sampling


def parsed(prompt: Any = "once", **request: Any) -> CanonicalRequest:
    return parse(orjson.dumps({"model": "m", "prompt": prompt, **request}), 4)


def refusal(prompt: Any = "once", **request: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        parsed(prompt, **request)
    assert error.value.status == 400
    return error.value


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
