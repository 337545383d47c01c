"""vLLM's `/inference/v1/generate`: its requests and answers, as its clients write and read them."""

import struct
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from seamlessflow.producers.gateway.calls.streamed import StreamedAnswer
from seamlessflow.producers.gateway.dialects.canonical import CanonicalRequest
from seamlessflow.producers.gateway.dialects.vllm_generate import completion, parse
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.producers.gateway.routes import DIALECTS
from seamlessflow.schemas.records import ReplyDelta, ReplyFinished, Sampling, TokenTensor
from seamlessflow.schemas.tokens import pack
from tests.builders.records import replies

PROMPT = [1, 2, 3]
SPOKEN = DIALECTS["/inference/v1/generate"]


def body(parameters: Any = None, **request: Any) -> bytes:
    return orjson.dumps(
        {"model": "m", "token_ids": PROMPT, "sampling_params": parameters or {}, **request}
    )


def parsed(parameters: Any = None, **request: Any) -> CanonicalRequest:
    return parse(body(parameters, **request), 4)


def refusal(parameters: Any = None, **request: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        parsed(parameters, **request)
    assert error.value.status == 400
    return error.value


def packed(*logprobs: float) -> bytes:
    return struct.pack(f"<{len(logprobs)}f", *logprobs)


def answer(*ids: int, **more: Any) -> ReplyFinished:
    fields = {
        "token_ids": pack(ids),
        "prompt_ids": pack(PROMPT),
        "logprobs": packed(*(-token for token in ids)),
        "completion_tokens": len(ids),
    }
    return replies.answer("ab", **{**fields, **more})


def delta(offset: int, *ids: int) -> ReplyDelta:
    fields: dict[str, Any] = {"token_ids": pack(ids), "token_count": len(ids)}
    fields["logprobs"] = packed(*(-token for token in ids))
    return replies.delta(offset, "", **fields, **({} if offset else {"prompt_ids": pack(PROMPT)}))


def whole(answers: Sequence[ReplyFinished], parameters: Any = None, **request: Any) -> Any:
    return orjson.loads(completion("t", 1, parsed(parameters, **request), answers))


def streamed(*sent: tuple[int, Any], parameters: Any = None, **request: Any) -> list[Any]:
    asked = parsed(parameters, stream=True, **request)
    made = StreamedAnswer(asked, lambda turn: SPOKEN.events(turn, 1, asked), SPOKEN.waiting)
    data = b"".join(made.write_reply(choice, reply) for choice, reply in sent)
    lines = [line.removeprefix(b"data: ") for line in data.split(b"\n") if line]
    assert lines[-1] == b"[DONE]"
    return [orjson.loads(line) for line in lines[:-1]]


def test_a_prompt_of_ids_is_used_as_it_is() -> None:
    request = parsed()
    assert request.messages == (b'{"ids":[1,2,3],"role":"raw"}',)
    assert request.raw and request.wants_token_ids and not request.wants_logprobs
    assert request.sampling == Sampling()


def test_the_ends_of_messages_go_to_the_manager_with_the_prompt() -> None:
    request = parsed({"stop_token_ids": [2, 5]})
    assert request.messages == (b'{"ids":[1,2,3],"role":"raw","stop_token_ids":[2,5]}',)
    assert parsed({"stop_token_ids": []}) == parsed()


def test_sampling_parameters_are_taken_over() -> None:
    asked = {"max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": -1, "n": 2, "stop": ["a"]}
    request = parsed({**asked, "seed": None, "min_p": None})
    assert request.choices == 2
    assert request.sampling == Sampling(
        max_tokens=3, temperature=0.5, top_p=0.9, top_k=0, stop=("a",)
    )


@pytest.mark.parametrize(("asked", "most"), [(0, 0), (1, 0), (2, 2), (20, 20)])
def test_the_sampled_token_is_the_first_of_the_likeliest(asked: int, most: int) -> None:
    request = parsed({"logprobs": asked})
    assert request.wants_logprobs
    assert request.sampling.top_logprobs == most


@pytest.mark.parametrize("prompt", [None, [], "once", [1, "a"], [-1], [2**31], [True], [[1]]])
def test_what_is_no_prompt_is_refused(prompt: Any) -> None:
    assert refusal(token_ids=prompt).param == "token_ids"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logprobs", -1),
        ("logprobs", 21),
        ("max_tokens", 0),
        ("n", 5),
        ("stop_token_ids", [1.5]),
        ("stop_token_ids", 2),
        ("ignore_eos", True),
        ("prompt_logprobs", 1),
        ("allowed_token_ids", [1]),
        ("bad_words", ["a"]),
        ("structured_outputs", {"json": {}}),
        ("logprob_token_ids", [1]),
        ("temperature", 3),
    ],
)
def test_a_parameter_that_cannot_be_obeyed_is_named(name: str, value: Any) -> None:
    assert refusal({name: value}).param == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sampling_params", [1]),
        ("features", {"mm_hashes": {}}),
        ("content_parts", [{}]),
        ("output_mode", "text"),
        ("stream", "yes"),
        ("request_id", 1),
        ("return_token_ids", 1),
    ],
)
def test_a_member_that_cannot_be_obeyed_is_named(name: str, value: Any) -> None:
    assert refusal(**{name: value}).param == name


def test_what_changes_no_token_is_ignored() -> None:
    parameters = {"skip_special_tokens": False, "detokenize": False, "output_kind": 2}
    members = {"cache_salt": "s", "priority": 1, "features": None, "content_parts": []}
    assert parsed(parameters, **members) == parsed()


def test_an_answer_has_its_ids_with_a_log_prob_each() -> None:
    read = whole([answer(4, 5, version=7)], {"logprobs": 1})
    assert read["request_id"] == "t"
    assert read["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert read["prompt_token_ids"] is None
    [choice] = read["choices"]
    assert (choice["token_ids"], choice["finish_reason"]) == ([4, 5], "stop")
    entry = {"token_id": 4, "token": "token_id:4", "logprob": -4.0, "bytes": None}
    assert choice["logprobs"]["content"][0] == {**entry, "top_logprobs": [entry]}
    assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == [-4.0, -5.0]


def test_the_sampled_token_stands_before_the_others_once() -> None:
    likeliest = {"topk_ids": pack([9, 4]), "topk_logprobs": packed(-1, -4)}
    tensors = tuple(
        TokenTensor(name=name, from_token=0, to_token=1, dtype="", data=data)
        for name, data in likeliest.items()
    )
    [choice] = whole([answer(4, tensors=tensors)], {"logprobs": 2})["choices"]
    [content] = choice["logprobs"]["content"]
    assert [entry["token_id"] for entry in content["top_logprobs"]] == [4, 9]


def test_a_client_that_asks_gets_its_prompt_and_its_name_back() -> None:
    read = whole([answer(4)], request_id="mine", return_token_ids=True)
    assert (read["request_id"], read["prompt_token_ids"]) == ("mine", PROMPT)
    assert read["choices"][0]["logprobs"] is None


def test_several_choices_are_numbered() -> None:
    read = whole([answer(4), answer(5)], {"n": 2})
    assert [(each["index"], each["token_ids"]) for each in read["choices"]] == [(0, [4]), (1, [5])]


def test_a_stream_has_each_token_once_and_then_the_reason() -> None:
    first, second, last = streamed(
        (0, delta(0, 4)),
        (0, delta(1, 5)),
        (0, answer(4, 5, token_offset=2)),
        parameters={"logprobs": 1},
        return_token_ids=True,
    )
    assert first["prompt_token_ids"] == PROMPT
    assert not any("prompt_token_ids" in event for event in (second, last))
    parts = [event["choices"][0] for event in (first, second, last)]
    assert [part["token_ids"] for part in parts] == [[4], [5], []]
    assert [part["finish_reason"] for part in parts] == [None, None, "stop"]
    shown = [part["logprobs"]["content"][0]["logprob"] for part in parts[:2]]
    assert shown == [-4.0, -5.0]


def test_a_stream_ends_with_its_usage_if_that_was_asked_for() -> None:
    *_, last = streamed((0, answer(4, 5)), stream_options={"include_usage": True})
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 2)


def test_log_probs_that_were_not_asked_for_are_not_shown() -> None:
    events = streamed((0, delta(0, 4)), (0, answer(4, token_offset=1)))
    assert [event["choices"][0]["logprobs"] for event in events] == [None, None]
    assert whole([answer(4)])["choices"][0]["logprobs"] is None


def test_tokens_behind_a_gap_come_with_the_end_once() -> None:
    events = streamed((0, delta(0, 4)), (0, delta(3, 7)), (0, answer(4, 5, 6, 7)))
    parts = [event["choices"][0]["token_ids"] for event in events]
    assert [token for part in parts for token in part] == [4, 5, 6, 7]
