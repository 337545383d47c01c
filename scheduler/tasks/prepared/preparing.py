"""Preparation of tasks: a source in any form becomes a JSON lines file, once.

The file's name has a hash of the source's content and the choice. So a source that changed gets a
new file, and one that did not is not written again. A file is whole, or not there. Called by
`seamlessflow/prepared_tasks.py`.
"""

import gzip
import itertools
import re
import zlib
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from hashlib import blake2b
from importlib.util import find_spec
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import NoReturn

import numpy as np
import xxhash

from seamlessflow.infra.disk import ScratchDirectory, name_whole, room_for
from seamlessflow.scheduler.tasks.file import task_id_of
from seamlessflow.scheduler.tasks.prepared.choosing import VERSION, RowChoice, shown_value
from seamlessflow.scheduler.tasks.prepared.places import (
    Compression,
    SourceFile,
    SourceKind,
    content_hash,
    located,
    shown_place,
)
from seamlessflow.scheduler.tasks.prepared.settings import TaskDataSection
from seamlessflow.scheduler.tasks.prepared.source import SourceRejected, SourceRow
from seamlessflow.scheduler.tasks.prepared.texts import csv_rows, line_rows, list_rows
from seamlessflow.schemas.json_text import write_json

RowProgress = Callable[[int], None]
"""Called with the count of rows read, every thousand rows."""

_EVERY = 1_000
_NAME_BYTES = 8
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_STEM = 40
_PLACE_BITS = 48
_PEEKED = 1 << 12
_ARROW = (SourceKind.PARQUET, SourceKind.ARROW)
_EXTRA = "needs pyarrow: pip install 'seamlessflow[parquet]', or scripts/setup in a checkout"


def prepared_file(
    text: str,
    section: TaskDataSection,
    for_evaluation: bool,
    folder: Path,
    progress: RowProgress,
) -> Path:
    """Return the JSON lines file in `folder` that has a source's chosen tasks.

    Raises `SourceRejected`, `DiskFull`, and `OSError` if nothing can be written there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with closing(ScratchDirectory(folder)) as scratch:
        files = located(text, scratch.path)
        target = folder / _name(text, files, section, for_evaluation)
        if not target.exists():
            draft = scratch.path / target.name
            with room_for(target, draft):
                _write(files, RowChoice(section, for_evaluation), draft, progress)
                name_whole(draft, target)
    return target


def _name(
    text: str, files: Sequence[SourceFile], section: TaskDataSection, for_evaluation: bool
) -> str:
    """Return a prepared file's name."""
    choice = {
        "version": VERSION,
        "map": section.map,
        "where": section.where,
        "held_back": section.held_back,
        "for_evaluation": for_evaluation and bool(section.held_back),
    }
    digest = blake2b(content_hash(files), digest_size=_NAME_BYTES)
    digest.update(write_json(choice))
    stem = PurePosixPath(shown_place(text)).name.partition(".")[0]
    readable = _NO_NAME.sub("-", stem)[:_LONGEST_STEM].strip("-") or "tasks"
    return f"{readable}-{digest.hexdigest()}.jsonl"


def _write(
    files: Sequence[SourceFile], choice: RowChoice, draft: Path, progress: RowProgress
) -> None:
    """Write all files' chosen tasks. Raises `SourceRejected`."""
    seen = _SeenIds()
    with draft.open("wb") as lines:
        for number, file in enumerate(files):
            for row in _rows_of(file, choice):
                if choice.rows % _EVERY == 0:
                    progress(choice.rows)
                line, task_id = _line(file, row, choice)
                if line:
                    lines.write(line)
                    seen.add(task_id, number, row.place)
    if not len(seen):
        name = files[0].shown if files else "source"
        raise SourceRejected(name, "", choice.nothing_left())
    repeated = seen.repeated()
    if repeated and not choice.made_ids:
        _refuse(seen, repeated[0], files, draft)
    if repeated:
        _leave_out(draft, {again for _, again in repeated})


def _line(file: SourceFile, row: SourceRow, choice: RowChoice) -> tuple[bytes, str]:
    """Return the line for a row's task and its id, both empty if the row is not chosen."""
    try:
        task = choice.task(row.values)
        if task is None:
            return b"", ""
        line = write_json(task)
        return line + b"\n", task_id_of(line)
    except TypeError as error:
        reason = _no_json(row, str(error))
        raise SourceRejected(file.shown, file.place(row.place), reason) from error
    except ValueError as error:
        raise SourceRejected(file.shown, file.place(row.place), str(error)) from error


def _no_json(row: SourceRow, reason: str) -> str:
    """Return which column of a row cannot be written as JSON."""
    for name, value in row.values.items():
        try:
            write_json(value)
        except TypeError as error:
            return f"column {name!r} is no JSON ({error}): leave it out, map names those to keep"
    return reason


class _SeenIds:
    """Hashes of the written tasks' ids with their rows' places, 24 bytes a task."""

    def __init__(self) -> None:
        self._hashes = bytearray()
        self._places = array("Q")

    def __len__(self) -> int:
        return len(self._places)

    def add(self, task_id: str, file: int, place: int) -> None:
        """Add the next task, from the row at a place in the file with this number."""
        self._hashes += xxhash.xxh3_128_digest(task_id.encode())
        self._places.append(file << _PLACE_BITS | place)

    def repeated(self) -> list[tuple[int, int]]:
        """Return (first, again) for each task whose id an earlier task has: both tasks' numbers.

        In practice only equal ids have equal 128-bit hashes.
        """
        halves = np.frombuffer(self._hashes, np.uint64).reshape(-1, 2)
        order = np.lexsort((halves[:, 1], halves[:, 0]))  # stable: equal ones keep their order
        equal = (halves[order][1:] == halves[order][:-1]).all(axis=1)
        pairs = []
        first = 0
        for number in map(int, np.flatnonzero(equal)):
            first = first if number and equal[number - 1] else number
            pairs.append((int(order[first]), int(order[number + 1])))
        return sorted(pairs, key=lambda pair: pair[1])

    def place(self, number: int, files: Sequence[SourceFile]) -> tuple[SourceFile, str]:
        """Return a task's file and place."""
        file = files[self._places[number] >> _PLACE_BITS]
        return file, file.place(self._places[number] & (1 << _PLACE_BITS) - 1)


def _refuse(
    seen: _SeenIds, pair: tuple[int, int], files: Sequence[SourceFile], draft: Path
) -> NoReturn:
    """Raise `SourceRejected` for two tasks with one id."""
    first, place = seen.place(pair[0], files)
    again, second = seen.place(pair[1], files)
    with draft.open("rb") as lines:
        line = next(itertools.islice(lines, pair[1], None))
    where = place if first == again else f"{first.shown}, {place}"
    reason = f"{where} has the id {shown_value(task_id_of(line))}, too"
    raise SourceRejected(again.shown, second, reason)


def _leave_out(draft: Path, numbers: Collection[int]) -> None:
    """Remove lines from a file, by their numbers from 0."""
    shorter = draft.with_suffix(".shorter")
    with draft.open("rb") as lines, shorter.open("wb") as left:
        left.writelines(line for number, line in enumerate(lines) if number not in numbers)
    shorter.replace(draft)


def _rows_of(file: SourceFile, choice: RowChoice) -> Iterator[SourceRow]:
    """Yield a file's rows. Raises `SourceRejected`."""
    with_arrow = file.kind in _ARROW or file.compression is Compression.ZSTD
    if with_arrow and find_spec("pyarrow") is None:
        raise SourceRejected(file.shown, "", _EXTRA)
    if file.kind in _ARROW and file.compression is not Compression.NONE:
        reason = f"a {file.kind.value} file is compressed inside: unpack it first"
        raise SourceRejected(file.shown, "", reason)
    return _arrow_rows(file, choice) if file.kind in _ARROW else _text_rows(file)


def _arrow_rows(file: SourceFile, choice: RowChoice) -> Iterator[SourceRow]:
    # Not earlier: pyarrow belongs to an optional extra.
    from seamlessflow.scheduler.tasks.prepared.arrow import arrow_rows, parquet_rows

    rows = parquet_rows if file.kind is SourceKind.PARQUET else arrow_rows
    return rows(file, choice)


def _text_rows(file: SourceFile) -> Iterator[SourceRow]:
    place = ""
    try:
        with closing(_stream(file)) as stream:
            for row in _read(file, stream):
                place = f"behind {file.place(row.place)}"
                yield row
    except (EOFError, zlib.error, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if file.compression is not Compression.NONE:
            reason = f"it is cut short or broken: {reason}"
        raise SourceRejected(file.shown, place, reason) from error


def _read(file: SourceFile, stream: BufferedReader) -> Iterator[SourceRow]:
    match file.kind:
        case SourceKind.CSV:
            return csv_rows(file, stream)
        case SourceKind.JSON if stream.peek(_PEEKED).lstrip()[:1] == b"[":
            return list_rows(file, stream)
        case _:
            return line_rows(file, stream)


def _stream(file: SourceFile) -> BufferedReader:
    match file.compression:
        case Compression.GZIP:
            return BufferedReader(gzip.open(file.path))
        case Compression.ZSTD:
            # Not earlier: pyarrow belongs to an optional extra.
            from seamlessflow.scheduler.tasks.prepared.arrow import open_zstd

            return open_zstd(file.path)
        case Compression.NONE:
            return file.path.open("rb")
