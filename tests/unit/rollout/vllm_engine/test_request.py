"""A request that may take several calls to a server."""

import orjson
import pytest

from seamlessflow.producers.rollout.engine.contract import ChunkSpan, SamplingParams, TokenChunk
from seamlessflow.producers.rollout.engine.errors import PromptTooLong, SamplingUnsupported
from seamlessflow.producers.rollout.engine.made_up import logprobs
from seamlessflow.producers.rollout.engine.request import Request
from seamlessflow.producers.rollout.vllm_engine.protocol import AnswerInvalid, TokenEvent
from seamlessflow.producers.rollout.vllm_engine.request import VllmRequest, finish_reason
from seamlessflow.schemas.tokens import pack

PROMPT = [1, 2, 3]
PLAIN = SamplingParams(50)
SCHEMA = SamplingParams(50, json_schema="{}")


def request(sampling: SamplingParams = PLAIN, completion: int = 0) -> VllmRequest:
    sampled = pack([9] * completion)
    return VllmRequest.from_request(
        Request.from_bytes("r", pack(PROMPT), sampled, sampling, 0, _never)
    )


def _never(chunk: TokenChunk) -> None:
    raise AssertionError(chunk)


def tokens(*ids: int, ended: str | None = None, versions: tuple[str, ...] = ()) -> TokenEvent:
    return TokenEvent(pack(list(ids)), logprobs(len(ids)), b"", b"", ended, versions)


def test_pieces_that_came_together_are_one_chunk() -> None:
    asked = request()
    first = asked.add_events([tokens(5, 6), tokens(7)], 3)
    assert first == TokenChunk(0, pack([5, 6, 7]), logprobs(3), (ChunkSpan(0, 3),), None)
    last = asked.add_events(
        [tokens(8, ended="stop", versions=("3",)), TokenEvent(cached_tokens=2)], 3
    )
    assert last == TokenChunk(3, pack([8]), logprobs(1), (ChunkSpan(3, 3),), "stop")
    assert asked.tokens == [*PROMPT, 5, 6, 7, 8]


def test_a_usage_alone_is_no_chunk() -> None:
    assert request().add_events([TokenEvent(cached_tokens=2)], 3) is None


def test_after_an_abort_the_next_call_goes_on() -> None:
    asked = request(completion=1)
    first = orjson.loads(asked.next_call(100, "version 3"))
    assert asked.add_events([tokens(5, 6)], 3) is not None
    assert asked.add_events([tokens(ended="abort", versions=("3",))], 3) is None
    second = orjson.loads(asked.next_call(100, "version 4"))
    assert [first["token_ids"], second["token_ids"]] == [[*PROMPT, 9], [*PROMPT, 9, 5, 6]]
    assert [call["sampling_params"]["max_tokens"] for call in (first, second)] == [49, 47]
    assert first["request_id"] != second["request_id"]
    chunk = asked.add_events([tokens(7)], 4)
    assert chunk is not None
    assert chunk.spans == (ChunkSpan(3, 4),)


def test_under_a_schema_all_tokens_come_at_the_end() -> None:
    asked = request(SCHEMA)
    asked.next_call(100, "v")
    assert asked.add_events([tokens(5, 6)], 3) is None
    whole = asked.add_events([tokens(7, ended="stop", versions=("3",))], 3)
    assert whole == TokenChunk(0, pack([5, 6, 7]), logprobs(3), (ChunkSpan(0, 3),), "stop")


def test_under_a_schema_a_call_that_was_ended_is_begun_anew() -> None:
    asked = request(SCHEMA)
    asked.next_call(100, "v")
    assert asked.add_events([tokens(5, 6)], 3) is None
    assert asked.add_events([tokens(ended="abort")], 3) is None
    assert orjson.loads(asked.next_call(100, "w"))["token_ids"] == PROMPT
    whole = asked.add_events([tokens(8, ended="stop")], 4)
    assert whole is not None
    assert whole.token_ids == pack([8])


def test_an_end_under_other_weights_than_those_loaded_is_an_error() -> None:
    assert finish_reason([tokens(5, ended="length", versions=("3",))], 3) == "length"
    for versions in (("4",), ("3", "4"), ("default",)):
        with pytest.raises(AnswerInvalid, match="loaded is 3"):
            finish_reason([tokens(5, ended="length", versions=versions)], 3)


def test_an_end_of_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(AnswerInvalid, match="repetition"):
        finish_reason([tokens(5, ended="repetition", versions=("3",))], 3)


def test_what_the_server_cannot_do_is_refused() -> None:
    for asked in (request(SamplingParams(50, seed=1)), request(SCHEMA, completion=2)):
        with pytest.raises(SamplingUnsupported):
            asked.check(100, 100, seeds=False)
    request(SamplingParams(50, seed=1)).check(100, 100, seeds=True)
    request(SCHEMA).check(100, 100, seeds=False)
    with pytest.raises(PromptTooLong):
        request(completion=98).check(100, 100, seeds=False)
