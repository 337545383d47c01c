"""Chunks of an engine in, records of `sessions` out."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.producers.rollout.engine.contract import FinishReason
from seamlessflow.producers.rollout.engine.made_up import logprobs
from seamlessflow.producers.rollout.turns.dispatch import Dispatch, sampling_params, turn_seed
from seamlessflow.producers.rollout.turns.refusal import unstarted
from seamlessflow.producers.rollout.turns.unwritten import ChunkIncomplete, ChunkOutOfOrder
from seamlessflow.schemas.records import (
    Sampling,
    TokenTensor,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnProgressed,
    VersionSpan,
)
from seamlessflow.schemas.tokens import pack, unpack
from tests.builders.records.prompts import generate
from tests.builders.records.replies import tensor
from tests.builders.rollout.completions import Letters, chunk, codes


def span(start: int, version: int) -> VersionSpan:
    return VersionSpan(start=start, version_min=version, version_max=version)


def test_a_whole_answer_becomes_one_record() -> None:
    dispatch = Dispatch(generate(), Letters(), 1_000)
    record = dispatch.advance([chunk(0, codes("hello"), "stop")], 1_001)
    assert isinstance(record, TurnCompleted)
    assert (record.session_id, record.turn_id, record.dispatch) == ("session", "turn", 1)
    assert (record.worker, record.incarnation) == ("worker-0", "inc-1")
    assert record.token_offset == 0
    assert unpack(record.token_ids) == codes("hello")
    assert len(record.logprobs) == len(record.token_ids)
    assert record.spans == (span(0, 7),)
    assert record.finish_reason == "stop"
    assert record.message == b'{"content":"hello","role":"assistant"}'
    assert record.delta is None
    assert record.prompt_length == 3
    assert record.prompt_hash == xxhash.xxh3_128_digest(pack([1, 2, 3]))
    assert record.at_ms == 1_001


def test_the_first_token_of_a_streamed_turn_is_written_at_once_then_every_100_ms() -> None:
    dispatch = Dispatch(generate(stream=True), Letters(), 1_000)
    assert dispatch.urgent
    first = dispatch.advance([chunk(0, codes("a"))], 1_010)
    assert isinstance(first, TurnProgressed)
    assert not dispatch.urgent
    assert dispatch.due_ms == 1_110
    assert dispatch.advance([chunk(1, codes("b"))], 1_050) is None
    assert dispatch.advance([chunk(2, codes("c"))], 1_109) is None
    second = dispatch.advance([chunk(3, codes("d"))], 1_110)
    assert isinstance(second, TurnProgressed)
    assert (second.token_offset, unpack(second.token_ids)) == (1, codes("bcd"))
    last = dispatch.advance([chunk(4, codes("e"), "length")], 1_111)
    assert isinstance(last, TurnCompleted)
    assert (last.token_offset, unpack(last.token_ids)) == (4, codes("e"))
    assert [first.delta, second.delta, last.delta] == [
        b'{"content":"a"}',
        b'{"content":"bcd"}',
        b'{"content":"e"}',
    ]
    assert last.message == b'{"content":"abcde","role":"assistant"}'
    assert last.finish_reason == "length"


def test_an_unstreamed_turn_is_written_every_two_seconds_without_deltas() -> None:
    dispatch = Dispatch(generate(), Letters(), 1_000)
    assert not dispatch.urgent
    assert dispatch.due_ms == 3_000
    assert dispatch.advance([chunk(0, codes("ab"))], 2_999) is None
    record = dispatch.advance([], 3_000)
    assert isinstance(record, TurnProgressed)
    assert unpack(record.token_ids) == codes("ab")
    assert record.delta is None


def test_a_silent_turn_says_after_five_seconds_that_it_is_still_held() -> None:
    dispatch = Dispatch(generate(), Letters(), 1_000)
    assert dispatch.advance([], 3_000) is None
    assert dispatch.advance([], 5_000) is None
    record = dispatch.advance([], 7_000)
    assert isinstance(record, TurnProgressed)
    assert (record.token_offset, record.token_ids) == (0, b"")


def test_an_abort_nobody_asked_for_hands_the_tokens_back() -> None:
    dispatch = Dispatch(generate(), Letters(), 1_000)
    record = dispatch.advance([chunk(0, codes("ab")), chunk(2, [], "abort")], 1_500)
    assert isinstance(record, TurnInterrupted)
    assert record.reason == "engine_failed"
    assert unpack(record.token_ids) == codes("ab")


def test_what_the_engine_refuses_late_fails_the_turn() -> None:
    dispatch = Dispatch(generate(), Letters(), 1_000)
    refused = replace(chunk(0, [], "abort"), refused="no such grammar")
    record = dispatch.advance([refused], 1_500)
    assert isinstance(record, TurnFailed)
    assert (record.status, record.reason) == (400, "unsupported_value")
    assert record.detail == "no such grammar"


def test_ending_a_turn_hands_back_what_was_not_written() -> None:
    dispatch = Dispatch(generate(stream=True), Letters(), 1_000)
    dispatch.advance([chunk(0, codes("a"))], 1_010)
    record = dispatch.end([chunk(1, codes("b"))], "preempted", 1_020)
    assert isinstance(record, TurnInterrupted)
    assert record.reason == "preempted"
    assert (record.token_offset, unpack(record.token_ids)) == (1, codes("b"))
    assert record.delta == b'{"content":"b"}'


def test_ending_a_turn_that_was_just_sampled_to_its_end_completes_it() -> None:
    dispatch = Dispatch(generate(), Letters(), 1_000)
    record = dispatch.end([chunk(0, codes("ab"), "stop")], "preempted", 1_020)
    assert isinstance(record, TurnCompleted)


def test_a_continuation_goes_on_where_the_tokens_end() -> None:
    request = generate(dispatch=2, completion_ids=pack(codes("abc")), stream=True)
    dispatch = Dispatch(request, Letters(), 1_000)
    record = dispatch.advance([chunk(3, codes("de"), "stop")], 1_001)
    assert isinstance(record, TurnCompleted)
    assert (record.token_offset, unpack(record.token_ids)) == (3, codes("de"))
    assert record.spans == (span(3, 7),)
    assert record.delta == b'{"content":"de"}'
    assert record.message == b'{"content":"abcde","role":"assistant"}'


def test_version_spans_of_a_record_cover_its_tokens() -> None:
    dispatch = Dispatch(generate(), Letters(), 1_000)
    chunks = [chunk(0, [65], version=1), chunk(1, [65], version=1), chunk(2, [65], version=2)]
    progressed = dispatch.advance(chunks, 3_000)
    completed = dispatch.advance([chunk(3, [65], "stop", version=2)], 3_001)
    assert isinstance(progressed, TurnProgressed)
    assert isinstance(completed, TurnCompleted)
    assert progressed.spans == (span(0, 1), span(2, 2))
    assert completed.spans == (span(3, 2),)


@given(
    text=st.text("abE ND", min_size=1, max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=6),
    times=st.lists(st.integers(0, 300), min_size=7, max_size=7),
    stops=st.sampled_from([(), ("END",), ("E", "ND")]),
)
def test_however_tokens_come_the_records_carry_each_once_and_the_deltas_are_the_message(
    text: str, cuts: list[int], times: list[int], stops: tuple[str, ...]
) -> None:
    sampling = Sampling(max_tokens=100, stop=stops)
    dispatch = Dispatch(generate(stream=True, sampling=sampling), Letters(), 1_000)
    ends = sorted({*(cut for cut in cuts if 0 < cut < len(text)), len(text)})
    written: list[TurnProgressed | TurnCompleted] = []
    now, start = 1_000, 0
    for end, passed in zip(ends, times, strict=False):
        now += passed
        reason: FinishReason | None = "stop" if end == len(text) else None
        record = dispatch.advance([chunk(start, codes(text[start:end]), reason)], now)
        start = end
        if isinstance(record, TurnProgressed | TurnCompleted):
            written.append(record)
        if isinstance(record, TurnCompleted):
            break
    assert isinstance(written[-1], TurnCompleted)
    stop_end = min((at + len(stop) for stop in stops if (at := text.find(stop)) >= 0), default=None)
    ids = [token for record in written for token in unpack(record.token_ids)]
    assert ids == codes(text[:stop_end])
    offsets = [record.token_offset for record in written]
    lengths = [len(record.token_ids) // 4 for record in written]
    assert offsets == [sum(lengths[:place]) for place in range(len(lengths))]
    deltas = "".join(orjson.loads(record.delta)["content"] for record in written if record.delta)
    content = orjson.loads(written[-1].message)["content"]
    assert deltas.rstrip() == content.rstrip()
    if stop_end is None:
        assert content == text


def test_a_hole_in_the_tokens_is_an_error() -> None:
    """Holds invariant I3."""
    dispatch = Dispatch(generate(), Letters(), 1_000)
    with pytest.raises(ChunkOutOfOrder) as hole:
        dispatch.advance([chunk(0, [65]), chunk(2, [65])], 1_001)
    assert (hole.value.expected, hole.value.offset) == (1, 2)


def test_a_turn_past_its_deadline_fails() -> None:
    dispatch = Dispatch(generate(deadline_ms=1_500), Letters(), 1_000)
    assert dispatch.due_ms == 1_500
    record = dispatch.advance([chunk(0, [65])], 1_500)
    assert isinstance(record, TurnFailed)
    assert (record.status, record.reason, record.cause) == (504, "deadline", "infrastructure")
    assert (record.dispatch, record.epoch) == (1, None)


def test_an_unstarted_turn_is_handed_back_without_tokens() -> None:
    record = unstarted(generate(completion_ids=pack([5, 6])), "preempted", 1_000)
    assert (record.token_offset, record.token_ids, record.reason) == (2, b"", "preempted")


def tensors(from_token: int, tokens: list[int]) -> tuple[TokenTensor, ...]:
    """Two most likely tokens beside each, as `chunk` makes them."""
    rows = [10 * token + place for token in tokens for place in range(2)]
    place: dict[str, Any] = {"from_token": from_token, "to_token": from_token + len(tokens)}
    place["shape"] = (len(tokens), 2)
    ids = tensor("topk_ids", data=pack(rows), **place)
    data = logprobs(2 * len(tokens))
    return ids, replace(ids, name="topk_logprobs", dtype="float32", data=data)


def test_the_most_likely_tokens_go_with_the_tokens_of_each_record() -> None:
    sampling = Sampling(max_tokens=100, top_logprobs=2, stop=("c",))
    request = generate(sampling=sampling, completion_ids=pack(codes("xy")), stream=True)
    dispatch = Dispatch(request, Letters(), 1_000)
    first = dispatch.advance([chunk(2, [65], top=2), chunk(3, [66], top=2)], 1_001)
    assert isinstance(first, TurnProgressed)
    assert first.tensors == tensors(2, [65, 66])
    last = dispatch.advance([chunk(4, codes("bcd"), "length", top=2)], 1_002)
    assert isinstance(last, TurnCompleted)
    assert last.tensors == tensors(4, codes("bc"))


def test_a_turn_handed_back_has_the_most_likely_tokens_of_what_it_hands_back() -> None:
    dispatch = Dispatch(generate(sampling=Sampling(max_tokens=9, top_logprobs=2)), Letters(), 1_000)
    assert dispatch.end([chunk(0, [65], top=2)], "preempted", 1_001).tensors == tensors(0, [65])
    empty = Dispatch(generate(sampling=Sampling(max_tokens=9, top_logprobs=2)), Letters(), 1_000)
    assert empty.end([], "preempted", 1_001).tensors == ()


@pytest.mark.parametrize("field", ["logprobs", "top_ids", "top_logprobs"])
def test_tokens_without_all_that_belongs_to_them_are_an_error(field: str) -> None:
    dispatch = Dispatch(generate(sampling=Sampling(max_tokens=9, top_logprobs=2)), Letters(), 1_000)
    lacking: dict[str, Any] = {field: b""}
    with pytest.raises(ChunkIncomplete) as incomplete:
        dispatch.advance([replace(chunk(0, [65], top=2), **lacking)], 1_001)
    assert incomplete.value.field == field


def test_sampling_left_open_is_that_of_the_raw_distribution() -> None:
    params = sampling_params(generate(sampling=Sampling()), (9,), 50)
    assert (params.temperature, params.top_p, params.top_k, params.seed) == (1.0, 1.0, 0, None)
    assert params.max_tokens == 47
    assert params.stop_token_ids == (9,)


def test_an_engine_is_given_the_name_of_the_session_and_the_choice() -> None:
    params = sampling_params(generate(session_id="g.0.0~command", choice=2), (), 50)
    assert (params.session, params.choice) == ("g.0.0", 2)


def test_sampling_is_taken_over_and_bounded_by_the_context() -> None:
    asked = Sampling(max_tokens=1_000, temperature=0.0, top_p=0.9, top_k=-1)
    params = sampling_params(generate(sampling=asked), (), 50)
    assert (params.temperature, params.top_p, params.top_k) == (0.0, 0.9, 0)
    assert params.max_tokens == 47
    assert sampling_params(generate(sampling=Sampling(max_tokens=5)), (), 50).max_tokens == 5


def test_a_seed_that_the_manager_gives_holds_wherever_the_turn_goes_on() -> None:
    asked = Sampling(seed=1)
    for request in (
        generate(seed=7, sampling=asked),
        generate(seed=7, session_id="second", turn_id="another"),
        generate(seed=7, dispatch=2, completion_ids=pack([1])),
    ):
        assert sampling_params(request, (), 50).seed == 7


def test_a_seed_is_of_its_own_for_session_turn_choice_and_offset() -> None:
    seeds = {
        turn_seed(generate(**changes), 1)
        for changes in (
            {},
            {"session_id": "another"},
            {"turn_id": "another"},
            {"choice": 1},
            {"completion_ids": pack([1])},
        )
    }
    assert len(seeds) == 5
    assert turn_seed(generate(), 1) == turn_seed(generate(dispatch=2), 1)
    assert turn_seed(generate(), 1) != turn_seed(generate(), 2)
    assert all(0 <= seed < 2**63 for seed in seeds)
