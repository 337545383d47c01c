"""Rows from texts: JSON lines, a JSON list, CSV.

A text is read as a stream: memory holds one line, or one task of a list.
"""

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError, JSONDecoder
from typing import Any, BinaryIO

from seamlessflow.infra.json_lines import json_fault, json_lines
from seamlessflow.scheduler.tasks.prepared.places import SourceFile
from seamlessflow.scheduler.tasks.prepared.source import SourceRejected, SourceRow
from seamlessflow.schemas.json_text import read_json

_CHUNK = 1 << 16
_LARGEST_TASK = 1 << 28
"""Most letters in a list's task and in a CSV field; beyond it a closing mark must be missing."""
_UNENDED = "Unterminated"
_LONGEST_TOKEN = 32
"""Within this many letters of the read text's end, an error may mean that more follows."""
_SPACE = " \t\r\n"
_BOM = "\ufeff"


def line_rows(file: SourceFile, stream: BinaryIO) -> Iterator[SourceRow]:
    """Yield the objects in JSON lines. Raises `SourceRejected`."""
    for line in json_lines(stream):
        try:
            value: Any = read_json(line.content)
        except ValueError as error:
            reason = json_fault(line.content, error)
            raise SourceRejected(file.shown, file.place(line.number), reason) from error
        if not isinstance(value, dict):
            raise SourceRejected(file.shown, file.place(line.number), "it is no JSON object")
        yield SourceRow(line.number, value)


def list_rows(file: SourceFile, stream: BinaryIO) -> Iterator[SourceRow]:
    """Yield the objects in a JSON list, with their numbers. Raises `SourceRejected`."""
    with _text(stream, "utf-8") as text:
        letters = _Letters(file, text)
        letters.take("[", "it is no JSON list")
        number = 0
        while letters.next() != "]":
            number += 1
            if number > 1:
                letters.take(",", "a comma or ] is missing behind it", number - 1)
            yield SourceRow(number, letters.json_object(number))
        letters.take("]", "")
        if letters.next():
            raise SourceRejected(file.shown, "", "more stands behind the end of the list")


@contextmanager
def _text(stream: BinaryIO, encoding: str) -> Iterator[io.TextIOWrapper]:
    """Yield a stream as text; its owner closes it."""
    text = io.TextIOWrapper(stream, encoding=encoding, newline="")
    try:
        yield text
    finally:
        text.detach()


class _Letters:
    """Text that is read in pieces, and taken from its beginning."""

    def __init__(self, file: SourceFile, stream: io.TextIOWrapper) -> None:
        self._file = file
        self._stream = stream
        self._text = ""
        self._place = 0
        self._decoder = JSONDecoder(parse_constant=_no_constant)
        if self.next() == _BOM:
            self._place += 1

    def next(self) -> str:
        """Return the next letter that is no space, or an empty string at the end."""
        while True:
            while self._place < len(self._text) and self._text[self._place] in _SPACE:
                self._place += 1
            if self._place < len(self._text):
                return self._text[self._place]
            if not self._read(_CHUNK):
                return ""

    def take(self, mark: str, reason: str, number: int = 0) -> None:
        """Pass over a mark. Raises `SourceRejected` if another stands there."""
        letter = self.next()
        if letter != mark:
            cut = "" if letter else " (it ends there: is it cut short?)"
            raise SourceRejected(self._file.shown, self._of(number), f"{reason}{cut}")
        self._place += 1

    def json_object(self, number: int) -> dict[str, Any]:
        """Return the object that begins here. Raises `SourceRejected`."""
        if self.next() != "{":
            reason = "it is no JSON object" if self.next() else "it is cut short: ] is missing"
            raise SourceRejected(self._file.shown, self._of(number), reason)
        size = _CHUNK
        while True:
            try:
                _, end = self._decoder.raw_decode(self._text, self._place)
                value: dict[str, Any] = read_json(self._text[self._place : end].encode())
            except JSONDecodeError as error:
                size *= 2
                unread = self._may_go_on(error) and size <= _LARGEST_TASK
                if not (unread and self._read(size)):
                    raise self._broken(number, error) from error
            except (ValueError, RecursionError) as error:
                raise SourceRejected(self._file.shown, self._of(number), str(error)) from error
            else:
                self._place = end
                return value

    def _may_go_on(self, error: JSONDecodeError) -> bool:
        """Return whether more letters may make an object whole."""
        return error.msg.startswith(_UNENDED) or error.pos > len(self._text) - _LONGEST_TOKEN

    def _broken(self, number: int, error: JSONDecodeError) -> SourceRejected:
        ended = error.msg.startswith(_UNENDED) or error.pos >= len(self._text)
        cut = " (it ends there: is it cut short?)" if ended else ""
        reason = f"{error.msg} at letter {error.pos - self._place + 1} of it{cut}"
        return SourceRejected(self._file.shown, self._of(number), reason)

    def _of(self, number: int) -> str:
        return self._file.place(number) if number else ""

    def _read(self, size: int) -> bool:
        """Read more letters; return False at the end. Raises `SourceRejected`."""
        try:
            more = self._stream.read(size)
        except UnicodeDecodeError as error:
            raise SourceRejected(self._file.shown, "", f"it is not UTF-8: {error}") from error
        if more:
            self._text = self._text[self._place :] + more
            self._place = 0
        return bool(more)


def csv_rows(file: SourceFile, stream: BinaryIO) -> Iterator[SourceRow]:
    """Yield the CSV rows by the names in the first row; all values are texts.

    A field in quotes may have line ends. Raises `SourceRejected`.
    """
    limit = csv.field_size_limit(_LARGEST_TASK)
    try:
        with _text(stream, "utf-8-sig") as text:
            yield from _csv_rows(file, csv.reader(text, delimiter=file.delimiter, strict=True))
    finally:
        csv.field_size_limit(limit)


def _csv_rows(file: SourceFile, reader: Any) -> Iterator[SourceRow]:
    begin = 1
    try:
        names: list[str] = next(reader, [])
        if wrong := _header_fault(names):
            raise SourceRejected(file.shown, "line 1", wrong)
        begin = reader.line_num + 1
        for fields in reader:
            if fields:
                if len(fields) != len(names):
                    reason = f"{len(fields)} fields, and the first row names {len(names)}"
                    raise SourceRejected(file.shown, file.place(begin), reason)
                yield SourceRow(begin, dict(zip(names, fields, strict=True)))
            begin = reader.line_num + 1
    except UnicodeDecodeError as error:
        raise SourceRejected(file.shown, file.place(begin), f"it is not UTF-8: {error}") from error
    except csv.Error as error:
        reason = f"{error}; the row began there, is a quote not closed?"
        raise SourceRejected(file.shown, file.place(begin), reason) from error


def _header_fault(names: list[str]) -> str:
    if not names:
        return "there is no row with the names of columns"
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    return f"two columns have the name {twice[0]!r}" if twice else ""


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")
