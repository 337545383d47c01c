"""Messages of completed dispatches: tool calls, stop strings, thinking, prefilled beginnings."""

from typing import Any

import orjson
import xxhash

from seamlessflow.infra.rendering.completion import MessageDelta, ParsedMessage
from seamlessflow.infra.rendering.tool_calls import ToolCall
from seamlessflow.producers.rollout.turns.dispatch import Dispatch
from seamlessflow.schemas.records import (
    Sampling,
    TurnCompleted,
    TurnProgressed,
    VersionSpan,
)
from seamlessflow.schemas.tokens import pack, unpack
from tests.builders.records.prompts import generate
from tests.builders.rollout.completions import Letters, chunk, codes


class Calls(Letters):
    """Every `c` is a tool call."""

    def feed(self, ids: bytes) -> MessageDelta:
        new = tuple(ToolCall("look", '{"n": 1}') for token in unpack(ids) if chr(token) == "c")
        self.calls = (*getattr(self, "calls", ()), *new)
        return MessageDelta(tool_calls=new)

    @property
    def message(self) -> ParsedMessage:
        return ParsedMessage(tool_calls=self.calls)


def test_tool_calls_get_public_ids_and_end_the_turn_as_such() -> None:
    dispatch = Dispatch(generate(stream=True, completion_ids=pack(codes("c"))), Calls(), 1_000)
    record = dispatch.advance([chunk(1, codes("cc"), "stop")], 1_001)
    assert isinstance(record, TurnCompleted)
    assert record.finish_reason == "tool_calls"
    assert record.delta is not None
    assert [(call["index"], call["id"]) for call in orjson.loads(record.delta)["tool_calls"]] == [
        (1, "call_turn_1"),
        (2, "call_turn_2"),
    ]
    message = orjson.loads(record.message)
    assert message["content"] is None
    assert [call["id"] for call in message["tool_calls"]] == [f"call_turn_{n}" for n in range(3)]
    assert message["tool_calls"][0] == {
        "id": "call_turn_0",
        "type": "function",
        "function": {"name": "look", "arguments": '{"n": 1}'},
    }


def test_a_tool_call_cut_by_length_is_no_end_by_tool_calls() -> None:
    dispatch = Dispatch(generate(), Calls(), 1_000)
    record = dispatch.advance([chunk(0, codes("c"), "length")], 1_001)
    assert isinstance(record, TurnCompleted)
    assert record.finish_reason == "length"


def test_a_stop_string_ends_the_turn_at_the_token_that_completes_it() -> None:
    sampling = Sampling(max_tokens=100, stop=("END", "zzz"))
    dispatch = Dispatch(generate(stream=True, sampling=sampling), Letters(), 1_000)
    assert dispatch.urgent
    first = dispatch.advance([chunk(0, codes("abcE"))], 1_001)
    assert isinstance(first, TurnProgressed)
    assert dispatch.urgent
    assert first.delta == b'{"content":"ab"}'
    last = dispatch.advance([chunk(4, codes("ND and more"), version=8)], 1_002)
    assert isinstance(last, TurnCompleted)
    assert (last.token_offset, unpack(last.token_ids)) == (4, codes("ND"))
    assert len(last.logprobs) == len(last.token_ids)
    assert last.spans == (VersionSpan(start=4, version_min=8, version_max=8),)
    assert (last.finish_reason, last.stop_sequence) == ("stop", "END")
    assert last.delta == b'{"content":"c"}'
    assert last.message == b'{"content":"abc","role":"assistant"}'


def test_a_stop_string_that_does_not_come_changes_nothing() -> None:
    sampling = Sampling(max_tokens=100, stop=("END",))
    dispatch = Dispatch(generate(stream=True, sampling=sampling), Letters(), 1_000)
    record = dispatch.advance([chunk(0, codes("an EN"), "length")], 1_001)
    assert isinstance(record, TurnCompleted)
    assert (record.finish_reason, record.stop_sequence) == ("length", None)
    assert record.delta == b'{"content":"an EN"}'
    assert record.message == b'{"content":"an EN","role":"assistant"}'


def test_a_stop_string_may_begin_before_a_continuation() -> None:
    sampling = Sampling(max_tokens=100, stop=("END",))
    request = generate(completion_ids=pack(codes("abE")), sampling=sampling)
    record = Dispatch(request, Letters(), 1_000).advance([chunk(3, codes("NDx"))], 1_001)
    assert isinstance(record, TurnCompleted)
    assert (record.token_offset, unpack(record.token_ids)) == (3, codes("ND"))
    assert record.message == b'{"content":"ab","role":"assistant"}'


class LateLetters(Letters):
    """All text comes at the end."""

    def feed(self, ids: bytes) -> MessageDelta:
        super().feed(ids)
        return MessageDelta()

    def finish(self) -> MessageDelta:
        return MessageDelta(content=self._content)


def test_a_stop_string_in_text_that_comes_late_ended_the_turn_too() -> None:
    sampling = Sampling(max_tokens=3, stop=("b",))
    dispatch = Dispatch(generate(sampling=sampling), LateLetters(), 1_000)
    record = dispatch.advance([chunk(0, codes("abc"), "length")], 1_001)
    assert isinstance(record, TurnCompleted)
    assert (record.finish_reason, record.stop_sequence) == ("stop", "b")
    assert record.message == b'{"content":"a","role":"assistant"}'


class Thoughts(Letters):
    """Every `t` is a thought."""

    @property
    def message(self) -> ParsedMessage:
        thoughts = self._content.count("t")
        return ParsedMessage(self._content, "t" * thoughts, reasoning_tokens=thoughts)


def test_tokens_of_thinking_are_those_that_were_sampled() -> None:
    request = generate(
        prompt_ids=pack([1, *codes("tt")]), prefill=2, completion_ids=pack(codes("t"))
    )
    record = Dispatch(request, Thoughts(), 1_000).advance([chunk(1, codes("ta"), "stop")], 1_001)
    assert isinstance(record, TurnCompleted)
    assert record.reasoning_tokens == 2


def test_tokens_of_thinking_that_nobody_can_tell_are_not_told() -> None:
    record = Dispatch(generate(), Letters(), 1_000).advance([chunk(0, codes("a"), "stop")], 1_001)
    assert isinstance(record, TurnCompleted)
    assert record.reasoning_tokens is None


FORCED: dict[str, Any] = {"prompt_ids": pack([1, *codes("go")]), "prefill": 2}


def test_an_answer_that_the_prompt_began_is_one_message_with_it() -> None:
    dispatch = Dispatch(generate(stream=True, **FORCED), Letters(), 1_000)
    first = dispatch.advance([chunk(0, codes("od"))], 1_001)
    assert isinstance(first, TurnProgressed)
    assert (first.token_offset, unpack(first.token_ids)) == (0, codes("od"))
    assert first.delta == b'{"content":"good"}'
    last = dispatch.advance([chunk(2, codes("!"), "stop")], 1_002)
    assert isinstance(last, TurnCompleted)
    assert last.delta == b'{"content":"!"}'
    assert last.message == b'{"content":"good!","role":"assistant"}'
    assert last.prompt_length == 3
    assert last.prompt_hash == xxhash.xxh3_128_digest(FORCED["prompt_ids"])


def test_the_beginning_is_told_with_the_first_token_and_never_again() -> None:
    idle = Dispatch(generate(stream=True, **FORCED), Letters(), 1_000).end([], "preempted", 1_001)
    assert idle.delta is None
    begun = Dispatch(generate(stream=True, **FORCED), Letters(), 1_000)
    assert begun.end([chunk(0, codes("o"))], "preempted", 1_001).delta == b'{"content":"goo"}'
    request = generate(stream=True, completion_ids=pack(codes("o")), **FORCED)
    record = Dispatch(request, Letters(), 1_000).advance([chunk(1, codes("d"), "stop")], 1_001)
    assert isinstance(record, TurnCompleted)
    assert record.delta == b'{"content":"d"}'
    assert record.message == b'{"content":"good","role":"assistant"}'


def test_a_call_that_the_prompt_began_is_the_first_of_the_turn() -> None:
    request = generate(stream=True, prompt_ids=pack([1, *codes("c")]), prefill=1)
    record = Dispatch(request, Calls(), 1_000).advance([chunk(0, codes("c"), "stop")], 1_001)
    assert isinstance(record, TurnCompleted)
    assert record.finish_reason == "tool_calls"
    assert record.delta is not None
    assert [call["index"] for call in orjson.loads(record.delta)["tool_calls"]] == [0, 1]


def test_a_stop_string_counts_from_the_beginning_of_the_answer() -> None:
    sampling = Sampling(max_tokens=100, stop=("goodbye",))
    dispatch = Dispatch(generate(sampling=sampling, **FORCED), Letters(), 1_000)
    record = dispatch.advance([chunk(0, codes("odbye and more"))], 1_001)
    assert isinstance(record, TurnCompleted)
    assert unpack(record.token_ids) == codes("odbye")
    assert record.message == b'{"content":"","role":"assistant"}'


def test_a_raw_answer_keeps_its_white_space() -> None:
    sampling = Sampling(max_tokens=100, stop=("END",))
    dispatch = Dispatch(generate(raw=True, stream=True, sampling=sampling), Letters(), 1_000)
    record = dispatch.advance([chunk(0, codes("  a \nEND"), "length")], 1_001)
    assert isinstance(record, TurnCompleted)
    assert record.delta == b'{"content":"  a \\n"}'
    assert record.message == b'{"content":"  a \\n","role":"assistant"}'
