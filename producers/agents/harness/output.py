"""Result of a program: the last line of its standard output that has a content.

The line may have what terminals are sent besides text: colour codes, a byte order mark, earlier
states of a progress bar before a carriage return. Called by `command.py`.
"""

import json
import os
import re
from typing import BinaryIO

from seamlessflow.infra.json_lines import line_content
from seamlessflow.producers.agents.result import LAST_LINE

LONGEST_LINE_BYTES = 16 * 1024**2
_READ_BYTES = (64 * 1024, 1024**2, 2 * LONGEST_LINE_BYTES)
"""Bytes from the end that are read, each if those before had no whole line."""
_TERMINAL_CODES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colours, moves of the cursor
    rb"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    rb"|[ -/]*[0-~])"  # others, such as the choice of a character set
)


def result_in(output: BinaryIO) -> object:
    """Return the result that a program printed: a mapping or a number.

    Of an output without one, a mapping with `LAST_LINE` alone, for the reason and the judge. `NaN`
    and `Infinity` are read, so that they are refused as rewards.
    """
    line = last_line(output)
    if len(line) > LONGEST_LINE_BYTES:
        return {LAST_LINE: f"a line of more than {LONGEST_LINE_BYTES} bytes"}
    text = line.decode(errors="replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict | int | float) else {LAST_LINE: text}


def last_line(output: BinaryIO) -> bytes:
    """Return the content of the last line that has one; empty if there is none.

    Of a line that is longer than allowed, a part that is also longer.
    """
    length = output.seek(0, os.SEEK_END)
    tail = b""
    for size in _READ_BYTES:
        output.seek(max(0, length - size))
        tail = output.read()
        # Of a part of the output, the first line may be cut.
        lines = (tail if size >= length else tail.partition(b"\n")[2]).split(b"\n")
        if content := next(filter(None, map(_content, reversed(lines))), b""):
            return content
        if size >= length:
            return b""
    return tail


def _content(line: bytes) -> bytes:
    """Return the text of a line that a terminal would show in the end."""
    states = _TERMINAL_CODES.sub(b"", line).split(b"\r")
    return next(filter(None, map(line_content, reversed(states))), b"")
