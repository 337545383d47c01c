"""Outputs of commands: a terminal shows the printed text, and obeys no control code in it.

A letter that the encoding of an output lacks is printed as \\u....
"""

import io
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TextIO, cast

from seamlessflow.infra.printable import printable_with_colours

_RETURN = "\r"
_GOES_ON = "the job goes on, and its files have the rest"


class _WatchedOutput:
    """An output that remembers a failed write: the error itself does not say which file failed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost = False

    def write(self, text: str) -> int:
        """Write the text. Raises `OSError`."""
        try:
            return self._stream.write(text)
        except OSError:
            self.lost = True
            raise

    def flush(self) -> None:
        """Flush what was written. Raises `OSError`."""
        try:
            self._stream.flush()
        except OSError:
            self.lost = True
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _GuardedOutput:
    """An output that shows control codes instead of passing them on."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = cast(TextIO, _WatchedOutput(stream))

    def write(self, text: str) -> int:
        """Write the text's printable form; a progress line may return to its beginning."""
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


class _LastingOutput:
    """An output that is silent after its first error: its reader has gone, or its disk is full."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text as far as it can be."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._end(error)
            return len(text)

    def flush(self) -> None:
        """Flush what was written as far as it can be."""
        try:
            self._stream.flush()
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError) -> None:
        _to_nowhere(self._stream)
        with suppress(OSError):
            print(f"seamlessflow: nothing can be printed ({error}); {_GOES_ON}", file=sys.stderr)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def lasting(stream: TextIO) -> TextIO:
    """Return a long job's output, which does not end with its reader as in `| head`."""
    return cast(TextIO, _LastingOutput(stream))


def is_lost(stream: TextIO) -> bool:
    """Return True if a write to the output failed; the rest of the output is then given up."""
    watched = unguarded(stream)
    if not isinstance(watched, _WatchedOutput) or not watched.lost:
        return False
    _to_nowhere(stream)
    return True


def _to_nowhere(stream: TextIO) -> None:
    """Lead an output to the null device, with all that Python still flushes at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def guard_outputs() -> None:
    """Guard the outputs of this process, for good."""
    sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr)


def unguarded(stream: TextIO) -> TextIO:
    """Return the output behind the guard, for a library that moves the cursor itself."""
    return stream.unguarded if isinstance(stream, _GuardedOutput) else stream


def _guarded(stream: TextIO | None) -> TextIO:
    if stream is None:  # closed by the program that started this process
        stream = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 # for good
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return cast(TextIO, _GuardedOutput(stream))
