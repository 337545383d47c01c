"""JSON lines from elsewhere: files with tasks, conversations or rows, and a program's output.

Only a line feed ends a line. Separators inside a text (U+2028, U+2029, U+0085) do not. A byte order
mark, with which some editors begin a file, is not part of a line's content. Nor is Windows'
carriage return. A line without content is skipped, also the last one.
"""

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from json import JSONDecodeError
from typing import NamedTuple


class JsonLine(NamedTuple):
    """A line that has content."""

    number: int
    """The line's number, from 1."""
    offset: int
    """First byte of the line in the file."""
    size: int
    """Bytes in the line, with its end."""
    content: bytes


def json_lines(lines: Iterable[bytes]) -> Iterator[JsonLine]:
    """Yield the lines that have content, from a file open for bytes; read them one by one.

    Raises what reading the file raises.
    """
    offset = 0
    for number, line in enumerate(lines, 1):
        if content := line_content(line):
            yield JsonLine(number, offset, len(line), content)
        offset += len(line)


def json_fault(content: bytes, error: ValueError) -> str:
    """Return why a line's content was refused.

    The JSON parser reads each line alone and calls it line 1, so only the column is named.
    """
    try:
        content.decode()
    except UnicodeDecodeError as broken:
        return f"it is not UTF-8 {broken_place(broken)}"
    if isinstance(error, JSONDecodeError):
        return f"{error.msg} at column {error.colno}" if error.pos else error.msg
    return str(error)


def broken_place(error: UnicodeDecodeError) -> str:
    """Return which byte is not UTF-8, and what to do."""
    line = error.object.count(b"\n", 0, error.start) + 1
    column = error.start - error.object.rfind(b"\n", 0, error.start)
    byte = f"byte 0x{error.object[error.start]:02x} at column {column}"
    where = byte if line == 1 else f"{byte} of line {line}"
    return f"({where}): write it in UTF-8, not in Latin-1 or UTF-16"


def line_content(line: bytes) -> bytes:
    """Return a line's content, empty if it has none."""
    return line.strip().removeprefix(BOM_UTF8).strip()
