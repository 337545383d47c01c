"""Texts of tokens and messages: as they are, whatever they hold, and no more than a page needs."""

from collections.abc import Sequence

import numpy as np
import orjson
import pytest

from seamlessflow.console.views.session.texts import (
    LONGEST_MESSAGE,
    MessageRow,
    TokenTexts,
    message_row,
    token_texts,
)
from tests.builders.records.content import message

SMILE = "😀".encode()


def spell(tokens: Sequence[int]) -> str:
    """Spell bytes."""
    return bytes(tokens).decode(errors="replace")


def texts(ids: Sequence[int], breaks: Sequence[int] | None = None) -> TokenTexts:
    marks = np.array(breaks or [0] * len(ids), np.int32)
    return token_texts(np.array(ids, np.int32), marks, spell)


def test_each_distinct_token_has_its_text_once() -> None:
    assert texts([98, 97, 98]) == TokenTexts((97, 98), ("a", "b"), ())


def test_a_character_of_several_tokens_is_spelt_together() -> None:
    assert texts([97, *SMILE, 97]).joined == ((1, 4, "😀"),)


def test_a_character_is_not_spelt_over_the_end_of_a_node() -> None:
    assert texts([*SMILE], [0, 0, 1, 1]).joined == ((0, 2, "\ufffd"), (2, 2, "\ufffd\ufffd"))


def test_without_a_tokenizer_ids_stand_for_texts() -> None:
    made = token_texts(np.array([7, 8], np.int32), np.zeros(2, np.int32), None)
    assert made.texts == ("7 ", "8 ")


HOSTILE = [
    ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    ("\x1b[31mred", "\u241b[31mred"),
    ("a\u202eb", "a\ufffdb"),
    ("nul\x00", "nul\u2400"),
]


@pytest.mark.parametrize(("text", "shown"), HOSTILE)
def test_text_is_shown_without_what_moves_a_cursor_or_turns_a_line(text: str, shown: str) -> None:
    assert message_row(message("user", text)).text == shown


def test_a_lone_surrogate_can_be_sent() -> None:
    row = message_row(b'{"role":"user","content":"\\ud800x"}')
    assert orjson.loads(orjson.dumps(row))["text"] == "?x"


def test_a_long_message_is_cut_and_says_how_long_it_is() -> None:
    row = message_row(message("tool", "x" * 5_000_000))
    assert len(row.text) == LONGEST_MESSAGE
    assert row.length == 5_000_000


def test_calls_of_tools_and_reasoning_are_shown() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "lookup", "arguments": '{"k":1}'}}
    row = message_row(message("assistant", None, tool_calls=[call], reasoning_content="hm"))
    assert row == MessageRow("assistant", "", "hm", (("lookup", '{"k":1}'),), 0)


PARTS = [
    (
        b'{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}',
        "a\n[image_url]",
    ),
    (b'{"role":"user","content":{"b":1}}', '{"b": 1}'),
    (b"no json", "no json"),
    (b"[1]", "[1]"),
]


@pytest.mark.parametrize(("content", "shown"), PARTS)
def test_any_content_has_a_text(content: bytes, shown: str) -> None:
    assert message_row(content).text == shown
