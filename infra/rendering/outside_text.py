"""Text from outside (users and tools), in which a spelt control token is only text.

Templates write messages and control tokens as one text, and a tokenizer cannot tell who wrote what.
Therefore a mark is put into each such spelling before the template sees it. Then the tokenizer
finds no token there, and removes the mark before it looks at the letters. Used by
`chat_template.py` and `tokenizer.py`.
"""

import json
import re
from collections.abc import Iterable, Mapping

import tokenizers

MARK = "\ufdd0\ufdd1"
"""Two code points that Unicode reserves for use inside a program."""

MARKUP = frozenset(
    ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
)
"""Tokens that structure a conversation although some tokenizers do not call them special."""


def control_spellings(added_tokens: Mapping[str, bool], template: str) -> list[str]:
    """Return the spellings of those added tokens that structure a conversation.

    `added_tokens` has True for a special token. Others count if they are in `MARKUP`, or if the
    chat template's source names them. Tokens for white space and HTML are ordinary text.
    """
    return [
        token
        for token, special in added_tokens.items()
        if len(token) > 1 and token.strip() and (special or token in MARKUP or token in template)
    ]


class OutsideText:
    """Guard that breaks the given spellings in text from outside."""

    def __init__(self, spellings: Iterable[str]) -> None:
        self._by_beginning: dict[str, list[str]] = {}
        for spelling in spellings:
            self._by_beginning.setdefault(spelling[:2], []).append(spelling)

    def guard(self, text: str) -> str:
        """Return the text with a mark behind each spelling's first letter."""
        for beginning, spellings in self._by_beginning.items():
            if beginning not in text:
                continue
            for spelling in spellings:
                while spelling in text:  # again, if it overlaps with itself
                    text = text.replace(spelling, spelling[0] + MARK + spelling[1:])
        return text


def removing_marks(inner: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Return a copy that looks for added tokens first, then removes marks, and then goes on."""
    settings = json.loads(inner.to_str())
    remove = {"type": "Replace", "pattern": {"String": MARK}, "content": ""}
    rest = [settings["normalizer"]] if settings["normalizer"] else []
    settings["normalizer"] = {"type": "Sequence", "normalizers": [remove, *rest]}
    for token in settings["added_tokens"]:
        if not re.search(r"\s", token["content"]):
            token["normalized"] = False
    return tokenizers.Tokenizer.from_str(json.dumps(settings))
