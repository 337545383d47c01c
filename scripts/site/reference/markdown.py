"""Markdown that the reference pages are made of: entries, tables and plain text."""

import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`[^`]+`)")
_MARKS = re.compile(r"([*_\[\]|])")


def plain(text: str) -> str:
    """Return a text that Markdown shows as it is; code between backticks stays code."""
    pieces = _CODE.split(" ".join(text.split()))
    # Every second piece is code, which Markdown leaves alone.
    pieces[::2] = [_MARKS.sub(r"\\\1", piece).replace("<", "&lt;") for piece in pieces[::2]]
    return "".join(pieces)


def code(text: object) -> str:
    """Return a text as code. A backtick inside it becomes a quotation mark."""
    return f"`{str(text).replace('`', chr(39))}`"


def entry(name: str, meaning: str, facts: Iterable[str]) -> str:
    """Return a term, its meaning below it, and a small line of facts."""
    small = " · ".join(fact for fact in facts if fact)
    parts = [part for part in (meaning, f"{small}\n    {{ .facts }}" if small else "") if part]
    return f"{code(name)}\n:   " + "\n\n    ".join(parts or ["-"]) + "\n"


def default(value: str) -> str:
    """Return a default as a fact; an empty one is no code."""
    return "default empty" if value == "empty" else f"default {code(value)}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose cells are Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
