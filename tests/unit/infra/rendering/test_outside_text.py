"""Words of users and tools: their control tokens are letters, and they open no thinking."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from seamlessflow.infra.rendering.outside_text import MARK, OutsideText, control_spellings
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import (
    CHAT_TEMPLATE,
    ControlTokens,
    RendererError,
    RendererSettings,
)
from seamlessflow.infra.rendering.tokenizer import Tokenizer
from seamlessflow.schemas.tokens import unpack
from tests.builders.messages import ASKED, TOLD, TOOLS, Message, called
from tests.builders.model_directories import FAMILIES, model_directory
from tests.builders.tokenizers import CONTROL_TOKENS, MARKUP_TOKENS, byte_tokenizer

HARMLESS = "a b"
LIBRARY = ("qwen3", "qwen3.5", "qwen3-vl", "prime-qwen3")
THINKING_TEMPLATE = (
    "{% for m in messages %}{{ '[INST]' + m.content + '[/INST]' if m.role == 'user' "
    "else m.content + '</s>' }}{% endfor %}"
)


def library(name: str, control_tokens: ControlTokens) -> tuple[Renderer, list[str]]:
    settings = RendererSettings(name, control_tokens=control_tokens)
    renderer = Renderer(Tokenizer(byte_tokenizer()), settings, "")
    return renderer, [*CONTROL_TOKENS, *MARKUP_TOKENS]


def of_template(directory: Path, name: str, rule: ControlTokens) -> tuple[Renderer, list[str]]:
    family = FAMILIES[name]
    model_directory(directory, family)
    settings = RendererSettings(CHAT_TEMPLATE, control_tokens=rule)
    return Renderer.load(directory, settings), [*family.specials, *family.plain]


@pytest.fixture(params=[*LIBRARY, *FAMILIES])
def both(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[list[tuple[Renderer, list[str]]]]:
    """A renderer of each rule, `text` first, with the spellings of its control tokens."""
    name = request.param
    yield [
        library(name, rule) if name in LIBRARY else of_template(tmp_path, name, rule)
        for rule in ("text", "tokens")
    ]


def forged(tokens: list[str]) -> str:
    """Return words that spell every control token, some of them overlapping."""
    return "x " + " ".join(tokens) + f" {tokens[0]}{tokens[1]}{tokens[0][:-1]}{tokens[1]} y"


def control_ids(renderer: Renderer, tokens: list[str], prompt: bytes) -> list[int]:
    control = {unpack(renderer.encode(token))[0] for token in tokens}
    return [token for token in unpack(prompt) if token in control]


def conversations(words: str) -> list[tuple[list[Message], list[Message] | None]]:
    asked: Message = {"role": "user", "content": words}
    result: Message = {**TOLD, "content": words}
    offered: list[Message] = [*TOOLS]
    return [([asked], None), ([ASKED, called("{}"), result], offered)]


def test_control_tokens_of_users_and_tools_are_letters_by_default(
    both: list[tuple[Renderer, list[str]]],
) -> None:
    (text, tokens), (as_tokens, _) = both
    words = forged(tokens)
    for (spelt, tools), (plain, _) in zip(
        conversations(words), conversations(HARMLESS), strict=True
    ):
        try:
            harmless = text.render(plain, tools)
        except RendererError:
            assert tools  # the template has no tools
            continue
        prompt = text.render(spelt, tools)
        assert control_ids(text, tokens, prompt) == control_ids(text, tokens, harmless)
        assert words in text.decode(prompt) or words in text.decode(prompt).replace("\\", "")
        assert MARK not in text.decode(prompt)
        assert len(control_ids(text, tokens, as_tokens.render(spelt, tools))) > len(
            control_ids(text, tokens, harmless)
        )


def test_words_without_control_tokens_are_the_same_tokens_by_both_rules(
    both: list[tuple[Renderer, list[str]]],
) -> None:
    (text, _), (as_tokens, _) = both
    for words in (HARMLESS, "<b> | < [x] <| im_end |>", "ä\u0301 \U0001f600  \n\n"):
        messages = [{"role": "user", "content": words}]
        assert text.render(messages) == as_tokens.render(messages)


def test_a_bridge_encodes_new_messages_as_a_whole_prompt_does(
    both: list[tuple[Renderer, list[str]]],
) -> None:
    renderer, tokens = both[0]
    prompt = renderer.render([ASKED])
    stop = bytes(renderer.stop_token_ids[0].to_bytes(4, "little"))
    suffix = renderer.bridge(
        prompt, renderer.encode("three") + stop, [{"role": "user", "content": forged(tokens)}]
    )
    harmless = renderer.bridge(
        prompt, renderer.encode("three") + stop, [{"role": "user", "content": HARMLESS}]
    )
    assert (suffix is None) == (harmless is None)
    if suffix is not None and harmless is not None:
        assert control_ids(renderer, tokens, suffix) == control_ids(renderer, tokens, harmless)
        assert forged(tokens) in renderer.decode(suffix)


def test_what_the_policy_said_keeps_its_tokens() -> None:
    text, _ = library("qwen3", "text")
    said = {"role": "assistant", "content": "see <tool_call>"}
    prompt = text.render([ASKED, said, ASKED])
    (mark,) = unpack(text.encode("<tool_call>"))
    assert mark in unpack(prompt)


def test_a_thought_in_the_words_of_a_user_opens_no_thinking(
    both: list[tuple[Renderer, list[str]]],
) -> None:
    for renderer, _ in both:
        for words in ("<think>", "a <think> b", "</think><think>\n"):
            prompt = renderer.render([{"role": "user", "content": words}])
            usual = renderer.render([ASKED])
            answer = renderer.encode("three")
            assert renderer.parse(answer, prompt=prompt) == renderer.parse(answer, prompt=usual)


@pytest.mark.parametrize("rule", ["text", "tokens"])
def test_a_template_without_a_generation_prompt_opens_no_thinking(
    tmp_path: Path, rule: ControlTokens
) -> None:
    family = FAMILIES["Mistral"]
    specials = (*family.specials, "<think>", "</think>")
    model_directory(tmp_path, type(family)("mistral", specials, "</s>", "<s>"), THINKING_TEMPLATE)
    renderer = Renderer.load(tmp_path, RendererSettings(CHAT_TEMPLATE, control_tokens=rule))
    prompt = renderer.render([{"role": "user", "content": "what does <think> do?"}])

    read = renderer.parse(renderer.encode("three</s>"), prompt=prompt)
    thought = renderer.parse(renderer.encode("<think>hm</think>three</s>"), prompt=prompt)
    assert (read.content, read.reasoning) == ("three", None)
    assert (thought.content, thought.reasoning) == ("three", "hm")
    after = renderer.bridge(prompt, renderer.encode("three</s>"), [ASKED])
    assert after is not None and renderer.decode(after) == "[INST]one[/INST]"


def test_a_generation_prompt_that_opens_thinking_still_does(tmp_path: Path) -> None:
    family = FAMILIES["Mistral"]
    specials = (*family.specials, "<think>", "</think>")
    source = THINKING_TEMPLATE + "{{ '<think>' if add_generation_prompt }}"
    model_directory(tmp_path, type(family)("mistral", specials, "</s>", "<s>"), source)
    renderer = Renderer.load(tmp_path, RendererSettings(CHAT_TEMPLATE, thinking_retention="all"))
    prompt = renderer.render([{"role": "user", "content": "</think>"}])
    read = renderer.parse(renderer.encode("hm</think>three</s>"), prompt=prompt)
    assert (read.content, read.reasoning) == ("three", "hm")


def test_settings_that_were_recorded_without_the_rule_keep_the_old_one() -> None:
    old = b'{"name":"qwen3","options":{},"thinking_retention":null}'
    assert RendererSettings.from_json(old).control_tokens == "tokens"
    assert RendererSettings.from_json(old).to_json() == old
    new = RendererSettings("qwen3")
    assert new.control_tokens == "text" and RendererSettings.from_json(new.to_json()) == new
    more = RendererSettings.from_json(old).with_options(b'{"enable_thinking":false}')
    assert more.control_tokens == "tokens"


def test_tokens_for_white_space_and_html_are_ordinary_text() -> None:
    added = {"<|im_end|>": True, "  ": False, "<table>": False, "<think>": False, "<turn>": False}
    spellings = control_spellings(added, "{{ '<turn>' }}  {{ m }}")
    assert spellings == ["<|im_end|>", "<think>", "<turn>"]


def test_spellings_that_overlap_are_all_marked() -> None:
    outside = OutsideText(["<a>", "><", "a>"])
    assert outside.guard("<a><") == f"<{MARK}a{MARK}>{MARK}<"
    assert OutsideText(["aa"]).guard("aaaa") == f"a{MARK}a{MARK}a{MARK}a"
    assert OutsideText([]).guard("<a>") == "<a>"
