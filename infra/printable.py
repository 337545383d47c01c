"""Text from outside, made safe to show: it moves no cursor and sets no title. Pure.

Such text comes in messages from agents and models, names in files and errors from other programs.
It may have control codes for a terminal (ECMA-48), or marks that turn a line's direction (Unicode
UAX 9).
"""

import re

_PICTURES = 0x2400
"""Unicode's block with a picture for each control code, at the same place."""
_DELETE = 0x7F
_DELETE_PICTURE = "\u2421"
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]",
)
"""All controls but tab and line feed, and the direction marks."""
_COLOUR = r"\x1b\[[0-9;]*m"
_HIDDEN_BUT_COLOURS = re.compile(rf"({_COLOUR})|{_HIDDEN.pattern}")


def printable(text: str) -> str:
    """Return the text with a visible sign instead of each control code; the length stays."""
    return _HIDDEN.sub(_sign, text)


def printable_with_colours(text: str) -> str:
    """Return the text as `printable` does, but keep the codes that set colours.

    For outputs to which a library writes text that it has coloured itself.
    """
    return _HIDDEN_BUT_COLOURS.sub(lambda match: match[1] or _sign(match), text)


def number_of(number: int, thing: str, things: str = "") -> str:
    """Return a count and its thing, such as 1 step or 1,000 steps."""
    return f"1 {thing}" if number == 1 else f"{number:,} {things or f'{thing}s'}"


def seconds(value: float) -> str:
    """Return a time in seconds with three digits, or with all digits from 1,000 s on."""
    return f"{value:.3g} s" if value < 999.5 else f"{value:,.0f} s"


def _sign(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code == _DELETE:
        return _DELETE_PICTURE
    return chr(_PICTURES + code) if code < ord(" ") else "\ufffd"
