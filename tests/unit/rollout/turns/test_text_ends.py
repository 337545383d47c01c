"""Ends of a turn by its text: a stop string, late or behind white space, and one tool call."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seamlessflow.consumers.trajectories.sessions.message_keys import message_key
from seamlessflow.infra.rendering.completion import NOTHING, MessageDelta, ParsedMessage
from seamlessflow.producers.rollout.engine.made_up import logprobs
from seamlessflow.producers.rollout.turns.dispatch import Dispatch
from seamlessflow.producers.rollout.turns.message import message_json
from seamlessflow.producers.rollout.turns.text_ends import StopText
from seamlessflow.schemas.records import GenerateTurn, Sampling, TurnCompleted, TurnInterrupted
from seamlessflow.schemas.tokens import TOKEN_BYTES, pack
from tests.builders.records.content import message
from tests.builders.records.prompts import generate
from tests.builders.rollout.completions import Letters, chunk, codes
from tests.builders.tokenizers import make_renderer

Message = Mapping[str, object]
ASKED: Message = {"role": "user", "content": "one"}
TOLD: Message = {"role": "tool", "tool_call_id": "c", "content": "four"}
TOOLS: list[Message] = [
    {"type": "function", "function": {"name": "act", "parameters": {"type": "object"}}}
]
THOUGHT = "<think>\nhm\n</think>\n\n"
JSON_CALL = '<tool_call>\n{"name": "act", "arguments": {"a": 1}}\n</tool_call>'
XML_CALL = "<tool_call>\n<function=act>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"
END = "<|im_end|>"


class HeldBack:
    """A stream that gives all its text at the end, as an unclosed tool call comes out."""

    message = ParsedMessage("code 3")
    space = ""

    def feed(self, ids: bytes) -> MessageDelta:
        return NOTHING

    def finish(self) -> MessageDelta:
        return MessageDelta(self.message.content)


def test_a_stop_string_in_what_was_held_back_leaves_no_space_before_it_in_the_stream() -> None:
    stream = StopText(HeldBack(), ["3"])
    stream.feed(b"\0\0\0\0")

    streamed = stream.finish().content

    assert streamed == stream.message.content == "code"


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        ("abcdef", ("x", "cd"), "cd"),
        ("abcdef", ("ef", "bc"), "bc"),
        ("abcdef", ("abcd", "bc"), "bc"),
        ("abcdef", ("x",), None),
    ],
)
def test_the_stop_string_that_ended_the_content_is_told(
    text: str, stops: tuple[str, ...], expected: str | None
) -> None:
    stream = StopText(Letters(), stops)
    stream.feed(pack(codes(text)))
    stream.finish()

    assert stream.stop_string == expected


@pytest.mark.parametrize("behind", ["", "more", "  "])
def test_a_stop_string_of_white_space_ends_the_turn_at_its_own_token(behind: str) -> None:
    renderer = make_renderer()
    upto, rest = renderer.encode("word\n\n"), renderer.encode(behind)
    stream = StopText(renderer.stream(), ["\n\n"])

    streamed = stream.feed(upto + rest).content + stream.finish().content

    assert (stream.stop_string, stream.found_after) == ("\n\n", len(upto) // TOKEN_BYTES)
    assert streamed == stream.message.content == "word"


@pytest.mark.parametrize(("stops", "expected"), [(("3", "de"), "de"), (("de", "d"), "de")])
def test_of_several_that_come_at_once_the_first_in_the_text_is_told(
    stops: tuple[str, ...], expected: str
) -> None:
    stream = StopText(HeldBack(), stops)
    stream.finish()

    assert (stream.stop_string, stream.message.content) == (expected, "co")


@settings(deadline=None, max_examples=200)
@given(
    text=st.text("ab \n", max_size=12),
    stops=st.lists(st.text("ab \n", min_size=1, max_size=4), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 12), max_size=4),
    raw=st.booleans(),
)
@example(text="word11 STOP", stops=["STOP"], cuts=list(range(11)), raw=False)
def test_the_streamed_text_is_that_of_the_message_and_continues_the_same_turn(
    text: str, stops: list[str], cuts: list[int], raw: bool
) -> None:
    renderer = make_renderer()
    ids = renderer.encode(text)
    places = [0, *sorted(TOKEN_BYTES * cut for cut in cuts), len(ids)]

    stream = StopText(renderer.raw_stream() if raw else renderer.stream(), stops, trimmed=not raw)
    parts = [stream.feed(ids[a:b]) for a, b in pairwise(places)]
    streamed = "".join(part.content for part in [*parts, stream.finish()])

    whole = StopText(renderer.raw_stream() if raw else renderer.stream(), stops, trimmed=not raw)
    whole.feed(ids)
    whole.finish()
    assert streamed == stream.message.content == whole.message.content
    sent_back = message("assistant", streamed)
    stored = message_json(whole.message, "turn")
    assert message_key(sent_back, "exact") == message_key(stored, "exact")


def asked(family: str, **changes: Any) -> GenerateTurn:
    sampling = Sampling(max_tokens=999, one_tool_call=True)
    prompt = make_renderer(family).render([ASKED], TOOLS)
    return generate(prompt_ids=prompt, sampling=sampling, stream=True, **changes)


def turn(request: GenerateTurn, family: str = "qwen3") -> Dispatch:
    renderer = make_renderer(family)
    stream = renderer.stream(TOOLS, request.prompt_ids)
    return Dispatch(request, stream, 1_000, renderer.stop_token_ids)


def ids(text: str) -> list[int]:
    return memoryview(make_renderer().encode(text)).cast("i").tolist()


def completed(text: str, family: str = "qwen3") -> TurnCompleted:
    """The whole turn of an engine that samples this, token by token."""
    under_way, tokens, sampled = turn(asked(family), family), ids(text), list[int]()
    for place, token in enumerate(tokens):
        reason: Any = "stop" if place == len(tokens) - 1 else None
        record = under_way.advance([chunk(place, [token], reason)], 1_001 + 1_000 * place)
        sampled += ids_of(record)
        if isinstance(record, TurnCompleted):
            assert len(sampled) == record.token_offset + len(record.token_ids) // 4
            return record
    raise AssertionError("the turn did not end")


def ids_of(record: object) -> list[int]:
    return [] if record is None else memoryview(vars(record)["token_ids"]).cast("i").tolist()


def calls(record: TurnCompleted) -> list[str]:
    entries = orjson.loads(record.message).get("tool_calls", [])
    return [call["function"]["arguments"] for call in entries]


@pytest.mark.parametrize(
    ("family", "before", "call"),
    [
        ("qwen3", "", JSON_CALL),
        ("qwen3", THOUGHT, JSON_CALL),
        ("qwen3", f"{THOUGHT}Let me see.\n", JSON_CALL),
        ("qwen3-vl", "", JSON_CALL),
        ("qwen3.5", THOUGHT, XML_CALL),
        ("prime-qwen3", THOUGHT, XML_CALL),
    ],
)
@pytest.mark.parametrize("behind", ["\n", "{call}", "\n{call}" + END, " and more" + END])
def test_a_turn_ends_behind_its_first_call(
    family: str, before: str, call: str, behind: str
) -> None:
    record = completed(f"{before}{call}{behind.format(call=call)}{END}", family)
    assert record.token_offset + len(record.token_ids) // 4 == len(ids(before + call))
    assert record.finish_reason == "tool_calls"
    assert record.stop_sequence is None
    assert [orjson.loads(arguments) for arguments in calls(record)] == [{"a": 1}]
    assert record.well_formed


@pytest.mark.parametrize("text", [JSON_CALL, f"{THOUGHT}{JSON_CALL}", "no call", f"{THOUGHT}so"])
def test_a_model_that_ends_its_turn_by_itself_samples_what_it_always_would(text: str) -> None:
    record = completed(text + END)
    assert record.token_offset + len(record.token_ids) // 4 == len(ids(text + END))


def test_a_call_that_cannot_be_read_does_not_count() -> None:
    record = completed(f"<tool_call>\nnot a call\n</tool_call>{JSON_CALL}\n{JSON_CALL}{END}")
    assert calls(record) == ['{"a": 1}']
    assert b"not a call" in record.message


def test_the_second_call_of_a_turn_is_neither_streamed_nor_kept() -> None:
    tokens = ids(f"{JSON_CALL}\n{JSON_CALL}{END}")
    record = turn(asked("qwen3")).advance([chunk(0, tokens, "stop")], 1_001)
    assert isinstance(record, TurnCompleted)
    assert ids_of(record) == ids(JSON_CALL)
    assert record.logprobs == logprobs(len(ids(JSON_CALL)))
    assert record.delta is not None
    assert len(orjson.loads(record.delta)["tool_calls"]) == 1


@pytest.mark.parametrize("behind", ["", "\n"])
def test_a_turn_that_goes_on_elsewhere_behind_its_call_ends_there_too(behind: str) -> None:
    start = turn(asked("qwen3"))
    record = start.end([chunk(0, ids(JSON_CALL))], "preempted", 1_001)
    assert isinstance(record, TurnInterrupted)
    request = asked("qwen3", dispatch=2, completion_ids=record.token_ids)
    tokens = ids(behind + END)
    last = turn(request).advance([chunk(len(ids(JSON_CALL)), tokens, "stop")], 2_000)
    assert isinstance(last, TurnCompleted)
    assert ids_of(last) == ([] if behind else ids(END))
    assert calls(last) == ['{"a": 1}']
    assert last.delta is None


def test_a_call_that_the_prompt_began_is_the_only_one() -> None:
    renderer = make_renderer()
    prompt = renderer.render([ASKED], TOOLS)
    begun = renderer.forced_call(prompt, [ASKED], TOOLS, "act")
    request = asked("qwen3", prefill=len(begun) // 4)
    request = generate(**{**vars(request), "prompt_ids": prompt + begun})
    rest = '"a":1}}\n</tool_call>'
    stream = renderer.stream(TOOLS, prompt)
    under_way = Dispatch(request, stream, 1_000, renderer.stop_token_ids)
    record = under_way.advance([chunk(0, ids(f"{rest}\n{JSON_CALL}{END}"), "stop")], 1_001)
    assert isinstance(record, TurnCompleted)
    assert ids_of(record) == ids(rest)
    assert calls(record) == ['{"a":1}']
    assert record.reasoning_tokens == 0


@pytest.mark.parametrize("family", ["qwen3", "qwen3.5"])
def test_the_next_turn_goes_on_behind_a_turn_that_was_ended(family: str) -> None:
    renderer = make_renderer(family, "all")
    call = XML_CALL if family == "qwen3.5" else JSON_CALL
    prompt, completion = renderer.render([ASKED], TOOLS), renderer.encode(call)
    ended = renderer.bridge(prompt, completion, [TOLD], TOOLS)
    by_itself = renderer.bridge(prompt, completion + pack(ids(END)), [TOLD], TOOLS)
    assert ended is not None and by_itself is not None
    assert ended == pack(ids(END)) + by_itself
