"""Completions of real tokenizers, read while their tokens come: text, stop strings and calls."""

import json
import random

import pytest

from seamlessflow.infra.rendering.completion import MessageDelta, MessageStream
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.producers.rollout.turns.text_ends import StopText
from seamlessflow.schemas.tokens import TOKEN_BYTES, pack

pytestmark = pytest.mark.real
TEXTS = (
    "The capital of France is Paris.",
    "😀 👩‍👩‍👧‍👦 🇩🇪🇫🇷 é",
    "日本語のテキスト, ﷺ and Ⅷ",
    "def f(x):\n    return x + 1\n\n\nprint(f(2))  # 3",
    "\u200b\u00a0\u2028",
)
ACT = {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": ACT}}
    for name in ("get_weather", "add", "_private", "search-web")
]
ONE = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich 😀"}}\n</tool_call>'
OTHER = (
    '<tool_call>\n{"name": "add", "arguments": {"n": 123456789012345678901234567890}}\n</tool_call>'
)
MALFORMED = {
    '<tool_call>\n{"name": "add", "arguments": {"n": 1}\n</tool_call>': "invalid_json",
    "<tool_call>\n{'name': 'add', 'arguments': {}}\n</tool_call>": "invalid_json",
    '<tool_call>\n{"name": "add", "arguments": {"n": NaN}}\n</tool_call>': "invalid_json",
    '<tool_call>\n{"arguments": {"n": 1}}\n</tool_call>': "missing_name",
    '<tool_call>\n{"name": "add", "parameters": {"n": 1}}\n</tool_call>': "missing_arguments",
    '<tool_call>\n{"name": "add", "arguments": {"n": 1}}': "unclosed_block",
    "<tool_call>\n[]\n</tool_call>": "malformed_structure",
}


def parts(stream: MessageStream, ids: bytes, rng: random.Random) -> list[MessageDelta]:
    """Feed a completion in chunks of one to four tokens; return all deltas."""
    deltas = []
    place = 0
    while place < len(ids):
        end = place + TOKEN_BYTES * rng.randint(1, 4)
        deltas.append(stream.feed(ids[place:end]))
        place = end
    return [*deltas, stream.finish()]


def in_letters(renderer: Renderer, text: str) -> bytes:
    """Return ids that a sampler may choose instead of the tokenizer's: each letter by itself."""
    return b"".join(renderer.encode(letter) for letter in text)


def ended(renderer: Renderer, text: str) -> bytes:
    return renderer.encode(text) + pack([renderer.stop_token_ids[0]])


@pytest.mark.parametrize("text", TEXTS)
def test_chunks_are_whole_characters_and_add_up_to_the_text(
    renderer: Renderer, text: str, rng: random.Random
) -> None:
    for ids in (renderer.encode(text), in_letters(renderer, text)):
        deltas = parts(renderer.stream(), ids, rng)
        assert "".join(delta.content for delta in deltas) == text.strip()
        assert not any("\ufffd" in delta.content for delta in deltas)


@pytest.mark.parametrize("text", TEXTS[:3])
def test_an_answer_that_is_cut_within_a_character_shows_a_mark_for_it_at_its_end(
    renderer: Renderer, text: str, rng: random.Random
) -> None:
    ids = renderer.encode(text)
    for end in range(0, len(ids) + 1, TOKEN_BYTES):
        deltas = parts(renderer.stream(), ids[:end], rng)
        shown = "".join(delta.content for delta in deltas)
        assert shown == renderer.parse(ids[:end]).content
        assert text.startswith(shown.rstrip("\ufffd"))


@pytest.mark.parametrize("text", TEXTS[:4])
def test_a_stop_string_cuts_the_text_wherever_its_tokens_are_cut(
    renderer: Renderer, text: str, rng: random.Random
) -> None:
    whole = text.strip()
    for ids in (renderer.encode(text), in_letters(renderer, text)):
        for _ in range(20):
            start = rng.randrange(len(whole))
            stop = whole[start : start + rng.randint(1, 6)]
            stream = StopText(renderer.stream(), [stop])
            shown = "".join(delta.content for delta in parts(stream, ids, rng))
            assert shown == whole.partition(stop)[0].rstrip()
            assert stream.message.content == shown
            assert stream.stop_string == stop


def test_calls_are_read_with_the_text_beside_them(calling: Renderer, rng: random.Random) -> None:
    prompt = calling.render([{"role": "user", "content": "x"}], TOOLS)
    for before in ("", "I look. 😀\n"):
        stream = calling.stream(TOOLS, prompt)
        deltas = parts(stream, ended(calling, f"{before}{ONE}\n{OTHER}"), rng)
        calls = [call for delta in deltas for call in delta.tool_calls]
        assert [call.name for call in calls] == ["get_weather", "add"]
        assert json.loads(calls[0].arguments) == {"city": "Zürich 😀"}
        assert calls[1].arguments == '{"n": 123456789012345678901234567890}'
        assert "".join(delta.content for delta in deltas) == before.strip()


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_call_is_text_and_has_a_reason(
    calling: Renderer, text: str, rng: random.Random
) -> None:
    stream = calling.stream(TOOLS)
    shown = "".join(delta.content for delta in parts(stream, ended(calling, text), rng))
    assert stream.message.malformed == (MALFORMED[text],)
    assert (shown, stream.message.tool_calls) == (text, ())


def test_a_call_in_a_fence_is_text(calling: Renderer) -> None:
    text = '```json\n{"name": "add", "arguments": {"n": 1}}\n```'
    message = calling.parse(ended(calling, text), TOOLS)
    assert (message.content, message.tool_calls, message.malformed) == (text, (), ())


def test_results_of_several_calls_follow_the_exact_ids(calling: Renderer) -> None:
    asked = [{"role": "user", "content": "x"}]
    prompt = calling.render(asked, TOOLS)
    completion = ended(calling, f"{ONE}\n{OTHER}")
    results = [
        {
            "role": "tool",
            "tool_call_id": f"call_{n}",
            "content": f"{n} 😀<|im_end|></tool_response>",
        }
        for n in range(2)
    ]
    suffix = calling.bridge(calling.tail(prompt), completion, results, TOOLS)
    calls = [
        {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": c.name, "arguments": c.arguments},
        }
        for n, c in enumerate(calling.parse(completion, TOOLS).tool_calls)
    ]
    answer = {"role": "assistant", "content": None, "tool_calls": calls}
    assert suffix is not None
    whole = calling.render([*asked, answer, *results], TOOLS)
    assert calling.decode(prompt + completion + suffix) == calling.decode(whole)


@pytest.mark.parametrize("name", [tool["function"]["name"] for tool in TOOLS])  # type: ignore[index]
def test_a_forced_call_begins_with_tokens_that_the_model_would_sample(
    calling: Renderer, name: str
) -> None:
    asked = [{"role": "user", "content": "x"}]
    prompt = calling.render(asked, TOOLS)
    opening = calling.forced_call(prompt, asked, TOOLS, name)
    for arguments in ("{}", '{"n": 1}'):
        text = f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
        assert calling.encode(text).startswith(opening)
