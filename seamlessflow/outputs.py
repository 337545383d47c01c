"""Outputs of commands: what is printed and echoed is shown by a terminal, which obeys none of it.

A letter that the encoding of an output lacks is printed as \\u....
"""

import io
import os
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

from infra.printable import printable_with_colours

_RETURN = "\r"


class _GuardedOutput:
    """An output that shows control codes instead of passing them on."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        """Write what is printable of the text; a progress line may return to its begin."""
        begin = _RETURN if text.startswith(_RETURN) else ""
        end = _RETURN if text.endswith(_RETURN) and len(text) > 1 else ""
        inner = text[len(begin) : len(text) - len(end)]
        self.unguarded.write(f"{begin}{printable_with_colours(inner)}{end}")
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines, each as `write` does."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


def guard_outputs() -> None:
    """Guard the outputs of this process, for good."""
    sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr)


def unguarded(stream: TextIO) -> TextIO:
    """Return the output behind the guard, for a library that moves the cursor itself."""
    return stream.unguarded if isinstance(stream, _GuardedOutput) else stream


def _guarded(stream: TextIO | None) -> TextIO:
    if stream is None:  # closed by whoever started this process
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 # for good
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return cast(TextIO, _GuardedOutput(stream))
