"""Markdown that the reference pages are made of: entries and plain text."""

import re
from collections.abc import Iterable

_CODE = re.compile(r"(`[^`]+`)")
_MARKS = re.compile(r"([*_\[\]])")


def plain(text: str) -> str:
    """Return a text that Markdown shows as it is; code between backticks stays code."""
    pieces = _CODE.split(" ".join(text.split()))
    # Every second piece is code, which Markdown leaves alone.
    pieces[::2] = [_MARKS.sub(r"\\\1", piece).replace("<", "&lt;") for piece in pieces[::2]]
    return "".join(pieces)


def code(text: object) -> str:
    """Return a text as code. A backtick inside it becomes a quotation mark."""
    return f"`{str(text).replace('`', chr(39))}`"


def facts(texts: Iterable[str]) -> str:
    """Return a paragraph of small facts, without the empty ones."""
    return " · ".join(filter(None, texts)) + "\n{ .facts }"


def entry(name: str, meaning: str, texts: Iterable[str] = ()) -> str:
    """Return a term, its meaning below it, and its facts."""
    small = [text for text in texts if text]
    parts = [meaning] if meaning else []
    parts += [facts(small).replace("\n", "\n    ")] if small else []
    return f"{code(name)}\n:   " + "\n\n    ".join(parts or ["-"]) + "\n"


def form_facts(form: str) -> list[str]:
    """Return type and default from an `ExplainedSetting`'s form, each as a fact."""
    kind, optional, value = form.partition("; default: ")
    if not optional:
        return [code(kind.removesuffix("; required")), "required"]
    return [code(kind), "default empty" if value == "empty" else f"default {code(value)}"]
