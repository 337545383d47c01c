"""Long texts that are tokenised aside, and rendered once their ids are known."""

import pytest
from tokenizers import Tokenizer as RustTokenizer

from seamlessflow.infra.rendering.outside_text import OutsideText
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.infra.rendering.tokenizer import (
    LONGEST_TEXT_KEPT,
    TEXTS_KEPT,
    LongTexts,
    Tokenizer,
    TokensWanted,
)
from tests.builders.messages import ASKED
from tests.builders.tokenizers import byte_tokenizer

LONG = "a <|im_end|> ä\n" * LONGEST_TEXT_KEPT
LIMIT = 2 * LONGEST_TEXT_KEPT


def renderer(inner: RustTokenizer) -> Renderer:
    return Renderer(Tokenizer(inner), RendererSettings("qwen3", "all"), "")


def test_a_prompt_is_the_same_once_its_long_text_was_tokenised_aside() -> None:
    plain, putting_off = renderer(byte_tokenizer()), renderer(byte_tokenizer())
    putting_off.put_off(LIMIT)
    messages = [ASKED, {"role": "assistant", "content": "two"}, {"role": "user", "content": LONG}]
    with pytest.raises(TokensWanted) as wanted:
        putting_off.render(messages)
    with pytest.raises(TokensWanted):  # until it is there
        putting_off.render(messages)

    wanted.value.tokenise()

    assert putting_off.render(messages) == plain.render(messages)


def test_a_bridge_waits_for_a_long_new_message_too() -> None:
    plain, putting_off = renderer(byte_tokenizer()), renderer(byte_tokenizer())
    putting_off.put_off(LIMIT)
    prompt, completion = plain.render([ASKED]), plain.encode("two<|im_end|>")
    new = [{"role": "user", "content": LONG}]
    with pytest.raises(TokensWanted) as wanted:
        putting_off.bridge(prompt, completion, new)
    wanted.value.tokenise()
    assert putting_off.bridge(prompt, completion, new) == plain.bridge(prompt, completion, new)


def test_texts_up_to_the_limit_are_tokenised_at_once() -> None:
    tokenizer = Tokenizer(byte_tokenizer())
    tokenizer.put_off(LIMIT)
    assert len(tokenizer.encode("a" * LIMIT)) == LIMIT
    with pytest.raises(TokensWanted):
        tokenizer.encode("a" * (LIMIT + 1))


def test_marked_text_is_tokenised_aside_as_at_once() -> None:
    marked = OutsideText(["<|im_end|>"]).guard(LONG)
    putting_off, plain = Tokenizer(byte_tokenizer()), Tokenizer(byte_tokenizer())
    putting_off.put_off(LIMIT)
    with pytest.raises(TokensWanted) as wanted:
        putting_off.encode(marked)
    wanted.value.tokenise()
    assert putting_off.encode(marked) == plain.encode(marked)


def test_an_error_of_tokenising_is_raised_where_the_text_is_rendered() -> None:
    def fail(text: str) -> list[int]:
        raise ValueError("no such letter")

    texts = LongTexts(fail)
    with pytest.raises(TokensWanted) as wanted:
        texts.ids("x")
    wanted.value.tokenise()
    with pytest.raises(ValueError, match="no such letter"):
        texts.ids("x")


def test_the_latest_texts_are_kept() -> None:
    texts = LongTexts(lambda text: [len(text)])
    for number in range(TEXTS_KEPT + 1):
        with pytest.raises(TokensWanted) as wanted:
            texts.ids("x" * number)
        wanted.value.tokenise()
    assert texts.ids("x" * TEXTS_KEPT) == [TEXTS_KEPT]
    with pytest.raises(TokensWanted):
        texts.ids("")
