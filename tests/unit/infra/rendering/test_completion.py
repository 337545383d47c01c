"""Completions of every shape, cut at every place, on every family that is read incrementally."""

from itertools import pairwise

import pytest
import renderers
from hypothesis import given, settings
from hypothesis import strategies as st

from seamlessflow.infra.rendering.completion import MessageDelta, MessageStream, ParsedMessage
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.infra.rendering.tool_calls import ToolCall
from seamlessflow.schemas.tokens import pack, unpack
from tests.builders.tokenizers import byte_tokenizer, make_renderer

unhurried = settings(deadline=None, max_examples=50)

TOOLS = [{"type": "function", "function": {"name": "act", "parameters": {"type": "object"}}}]
FAMILIES = ("qwen3", "qwen3.5", "qwen3-vl", "prime-qwen3")

pieces = st.sampled_from(
    [
        *("a", "é", "漢", " ", "\n", "\u2003", "<", "</think", "\ufffd"),
        *("<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_start|>", "<tool_response>"),
        '<tool_call>\n{"name": "act", "arguments": {"a":1}}\n</tool_call>',
        '<tool_call>{"name": "act"}</tool_call>',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "act", "arguments": NaN}</tool_call>',
        "<tool_call>\n<function=act>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
        "<|im_end|>",
    ]
)
texts = st.lists(pieces, max_size=12).map("".join)
raw_ids = st.lists(st.integers(0, 280), max_size=20)


@st.composite
def completions(draw: st.DrawFn) -> bytes:
    """Markup in any order, half characters among it."""
    encode = Tokenizer(byte_tokenizer()).encode
    ids = encode(draw(texts))
    for _ in range(draw(st.integers(0, 3))):
        del ids[draw(st.integers(0, len(ids))) :][:1]
        ids.insert(draw(st.integers(0, len(ids))), draw(st.integers(0, 255)))
    return pack(ids + draw(raw_ids))


def joined(deltas: list[MessageDelta]) -> MessageDelta:
    return MessageDelta(
        "".join(delta.content for delta in deltas),
        "".join(delta.reasoning for delta in deltas),
        sum((delta.tool_calls for delta in deltas), ()),
    )


def fed_in_pieces(stream: MessageStream, ids: bytes, cuts: list[int]) -> list[MessageDelta]:
    places = [0, *sorted(cut % (len(ids) // 4 + 1) for cut in cuts), len(ids) // 4]
    fed = [stream.feed(ids[4 * a : 4 * b]) for a, b in pairwise(places)]
    return [*fed, stream.finish()]


@pytest.mark.parametrize("family", FAMILIES)
@unhurried
@given(completions(), st.lists(st.integers(0, 99), max_size=5), st.booleans())
def test_all_deltas_together_are_the_parsed_message(
    family: str, ids: bytes, cuts: list[int], offered: bool
) -> None:
    renderer = make_renderer(family)
    tools = TOOLS if offered else None
    message = renderer.parse(ids, tools)
    stream = renderer.stream(tools)
    whole = joined(fed_in_pieces(stream, ids, cuts))
    assert stream.message == message
    assert whole == MessageDelta(message.content, message.reasoning or "", message.tool_calls)


@pytest.mark.parametrize("family", FAMILIES)
@unhurried
@given(completions(), st.lists(st.integers(0, 99), max_size=5))
def test_what_has_come_out_depends_on_the_tokens_alone(
    family: str, ids: bytes, cuts: list[int]
) -> None:
    renderer = make_renderer(family)
    pieces_stream, once = renderer.stream(TOOLS), renderer.stream(TOOLS)
    in_pieces = joined(fed_in_pieces(pieces_stream, ids, cuts)[:-1])
    assert in_pieces == once.feed(ids)


@pytest.mark.parametrize("family", FAMILIES)
@unhurried
@given(completions())
def test_the_reading_agrees_with_the_librarys_where_that_keeps_the_text(
    family: str, ids: bytes
) -> None:
    renderer = make_renderer(family)
    library = renderers.create_renderer(
        Tokenizer(byte_tokenizer()), renderers.config_from_name(family)
    )
    prompt = renderer.render([{"role": "user", "content": "a"}])
    theirs = library.parse_response(unpack(ids), tools=TOOLS, prompt_ids=unpack(prompt))
    ours = renderer.parse(ids, TOOLS)
    starts_with_header = renderer.decode(ids).startswith("<|im_start|>assistant\n")
    if starts_with_header or "</think" in (ours.reasoning or "") + ours.content:
        return  # a header, and look-alike text, which the library takes for the real ones
    assert (ours.reasoning or "") == (theirs.reasoning_content or "").strip()
    assert ours.reasoning_closed == theirs.reasoning_complete
    good = [call for call in theirs.tool_calls if call.status == "ok"]
    assert {call.name for call in ours.tool_calls} <= {call.name for call in good}
    if not theirs.tool_calls:
        assert ours.content == theirs.content


@unhurried
@given(completions())
def test_nothing_sampled_is_lost(ids: bytes) -> None:
    renderer = make_renderer()
    message = renderer.parse(ids, TOOLS)
    read = message.content + (message.reasoning or "")
    for letter in ("漢", "é"):
        sampled = renderer.decode(ids).split("<|im_end|>")[0].split("<|endoftext|>")[0]
        assert read.count(letter) == sampled.count(letter)


def test_plain_content_comes_at_once() -> None:
    renderer = make_renderer()
    stream = renderer.stream(TOOLS)
    parts = [stream.feed(pack([token])).content for token in unpack(renderer.encode("a b"))]
    assert parts == ["a", "", " b"]


def test_thinking_comes_at_once_and_apart() -> None:
    renderer = make_renderer()
    stream = renderer.stream(TOOLS)
    assert stream.feed(renderer.encode("<think>\nwhy")) == MessageDelta(reasoning="why")
    assert stream.feed(renderer.encode("\n</think>\n\nso")) == MessageDelta(content="so")
    assert not stream.finish()
    assert stream.message.reasoning == "why"


def test_thinking_that_the_prompt_opened_needs_no_mark() -> None:
    renderer = make_renderer("qwen3.5")
    assert renderer.parse(renderer.encode("why</think>so")).reasoning == "why"
    off = make_renderer("qwen3.5", thinking=False)
    assert off.parse(off.encode("so")).reasoning is None


def test_the_prompt_decides_whether_thinking_is_open() -> None:
    renderer = make_renderer("qwen3.5")
    prompt = renderer.encode("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert renderer.parse(renderer.encode("so"), prompt=prompt).content == "so"


def test_a_tool_call_comes_when_its_block_closes() -> None:
    renderer = make_renderer()
    stream = renderer.stream(TOOLS)
    block = renderer.encode('<tool_call>\n{"name": "act", "arguments": {"a":1}}\n</tool_call>')
    assert not stream.feed(block[:-4])
    assert stream.feed(block[-4:]).tool_calls == (ToolCall("act", '{"a":1}'),)


def test_a_malformed_tool_call_stays_in_the_content_word_for_word() -> None:
    renderer = make_renderer()
    text = 'so <tool_call>\n{"name": "act", \n</tool_call> there'
    message = renderer.parse(renderer.encode(f"{text}<|im_end|>"), TOOLS)
    assert message.content == text
    assert message.malformed == ("invalid_json",)
    assert not message.well_formed


def test_an_unclosed_tool_call_stays_in_the_content() -> None:
    renderer = make_renderer()
    message = renderer.parse(renderer.encode('<tool_call>{"name"'), TOOLS)
    assert message.content == '<tool_call>{"name"'
    assert message.malformed == ("unclosed_block",)


@pytest.mark.parametrize("arguments", ["[" * 50_000, "1" * 5_000])
def test_json_that_python_cannot_read_is_a_malformed_call(arguments: str) -> None:
    renderer = make_renderer()
    text = f'<tool_call>{{"name": "act", "arguments": {arguments}}}</tool_call>'
    assert renderer.parse(renderer.encode(text), TOOLS).malformed == ("invalid_json",)


def test_without_offered_tools_their_markup_is_content() -> None:
    renderer = make_renderer()
    text = '<tool_call>\n{"name": "act", "arguments": {}}\n</tool_call>'
    message = renderer.parse(renderer.encode(text))
    assert message.content == text
    assert message.well_formed


def test_a_tool_call_ends_thinking_that_has_no_end() -> None:
    renderer = make_renderer()
    text = '<think>why<tool_call>{"name": "act", "arguments": {}}</tool_call>'
    message = renderer.parse(renderer.encode(text), TOOLS)
    assert (message.reasoning, len(message.tool_calls)) == ("why", 1)


def test_a_tool_call_before_the_end_of_thinking_is_a_thought() -> None:
    renderer = make_renderer()
    message = renderer.parse(renderer.encode("<think>why<tool_call>x</think>so"), TOOLS)
    assert (message.reasoning, message.content) == ("why<tool_call>x", "so")
    assert message.well_formed


def test_a_completion_cut_inside_its_thinking_says_so() -> None:
    renderer = make_renderer()
    message = renderer.parse(renderer.encode("<think>why"))
    assert (message.reasoning, message.content, message.reasoning_closed) == ("why", "", False)


CALL = '<tool_call>{"name": "act", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("thought", "rest"),
    [
        ("", "so"),
        ("", CALL),
        ("", "so <think>\nno thought\n</think>"),
        ("<think>\nwhy\n</think>", "\n\nso"),
        ("<think></think>", "so"),
        ("<think>why <think> twice</think>", CALL),
        ("<think>why<tool_call>x</think>", "so"),
        ("<think>why", CALL),
        ("<think>why", ""),
    ],
)
def test_tokens_of_thinking_are_counted_with_those_around_it(thought: str, rest: str) -> None:
    renderer = make_renderer()
    message = renderer.parse(renderer.encode(f"{thought}{rest}<|im_end|>"), TOOLS)
    assert message.reasoning_tokens == len(renderer.encode(thought)) // 4


def test_thinking_that_the_prompt_opened_is_counted_to_its_end() -> None:
    renderer = make_renderer("qwen3.5")
    completion = renderer.encode("why</think>so")
    assert renderer.parse(completion, TOOLS).reasoning_tokens == 4


def test_what_follows_a_stop_token_does_not_count() -> None:
    renderer = make_renderer()
    assert renderer.parse(renderer.encode("so<|im_end|>\nmore")).content == "so"


@unhurried
@given(completions(), st.lists(st.integers(0, 99), max_size=5))
def test_a_raw_completion_is_its_text_without_special_tokens(ids: bytes, cuts: list[int]) -> None:
    renderer = make_renderer()
    stream = renderer.raw_stream()
    whole = joined(fed_in_pieces(stream, ids, cuts))
    text = Tokenizer(byte_tokenizer()).decode(unpack(ids), skip_special_tokens=True)
    assert stream.message == ParsedMessage(content=text)
    assert whole == MessageDelta(text)


def test_a_raw_completion_keeps_white_space_and_markup() -> None:
    renderer = make_renderer()
    stream = renderer.raw_stream()
    text = ' \n<think>why</think><tool_call>{"name"\n'
    assert stream.feed(renderer.encode(f"{text}<|im_end|>")) == MessageDelta(text)


def test_a_character_of_a_raw_completion_comes_when_its_bytes_are_there() -> None:
    renderer = make_renderer()
    stream = renderer.raw_stream()
    parts = [stream.feed(pack([token])).content for token in unpack(renderer.encode("漢"))]
    assert parts == ["", "", "漢"]
    stream.feed(renderer.encode("漢")[:-4])
    assert stream.finish() == MessageDelta("\ufffd")
