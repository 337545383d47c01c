"""Rows from Parquet and Arrow files, and zstd. Only this module uses pyarrow for tasks.

Memory holds one Parquet row group or Arrow batch, and some of its rows as Python values.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from seamlessflow.scheduler.tasks.prepared.choosing import RowChoice
from seamlessflow.scheduler.tasks.prepared.places import SourceFile
from seamlessflow.scheduler.tasks.prepared.source import SourceRejected, SourceRow

_BATCH_ROWS = 1_024
_PART_BYTES = 1 << 22
"""Most bytes of Arrow values that become Python values at a time, unless a row is larger."""
_MAGIC = b"PAR1"
_FILE_MAGIC = b"ARROW1"


def open_zstd(path: Path) -> io.BufferedReader:
    """Return the content of a zstd-compressed file."""
    return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"))


def parquet_rows(file: SourceFile, choice: RowChoice) -> Iterator[SourceRow]:
    """Yield a Parquet file's rows with the chosen columns. Raises `SourceRejected`."""
    _refuse_cut(file)
    group = number = 0
    place = "its end, which lists its row groups"
    try:
        with pq.ParquetFile(file.path) as parquet:
            columns = _columns(file, choice, parquet.schema_arrow)
            for group in range(parquet.num_row_groups):
                place = f"row group {group + 1} of {parquet.num_row_groups}"
                batches = parquet.iter_batches(_BATCH_ROWS, [group], columns)
                for row in _rows(batches, number):
                    number = row.place
                    place = (
                        f"row group {group + 1} of {parquet.num_row_groups}, behind row {number}"
                    )
                    yield row
    except (pa.ArrowException, OSError) as error:
        raise SourceRejected(file.shown, place, f"it is broken: {error}") from error


def arrow_rows(file: SourceFile, choice: RowChoice) -> Iterator[SourceRow]:
    """Yield the rows of an Arrow stream or file. Raises `SourceRejected`."""
    number = 0
    try:
        with pa.memory_map(str(file.path)) as content:
            for row in _rows(_arrow_batches(file, choice, content), 0):
                number = row.place
                yield row
    except (pa.ArrowException, OSError) as error:
        reason = f"it is cut short or broken: {error}"
        raise SourceRejected(file.shown, f"behind row {number}", reason) from error


def _arrow_batches(file: SourceFile, choice: RowChoice, content: Any) -> Iterator[Any]:
    with file.path.open("rb") as begin:
        is_file = begin.read(len(_FILE_MAGIC)) == _FILE_MAGIC
    if is_file:
        with pa.ipc.open_file(content) as reader:
            columns = _columns(file, choice, reader.schema)
            for number in range(reader.num_record_batches):
                yield _selected(reader.get_batch(number), columns)
    else:
        with pa.ipc.open_stream(content) as reader:
            columns = _columns(file, choice, reader.schema)
            for batch in reader:
                yield _selected(batch, columns)


def _selected(batch: Any, columns: list[str] | None) -> Any:
    return batch if columns is None else batch.select(columns)


def _rows(batches: Iterator[Any], before: int) -> Iterator[SourceRow]:
    """Yield the rows in batches, few at a time if they are large."""
    number = before
    for batch in batches:
        size = max(1, batch.num_rows * _PART_BYTES // max(_PART_BYTES, batch.nbytes))
        for begin in range(0, batch.num_rows, size):
            for values in batch.slice(begin, size).to_pylist():
                number += 1
                yield SourceRow(number, values)


def _columns(file: SourceFile, choice: RowChoice, schema: Any) -> list[str] | None:
    try:
        return choice.columns(schema.names)
    except ValueError as error:
        raise SourceRejected(file.shown, "", str(error)) from error


def _refuse_cut(file: SourceFile) -> None:
    """Raise `SourceRejected` for a file without a Parquet beginning or end."""
    try:
        with file.path.open("rb") as content:
            begin = content.read(len(_MAGIC))
            size = content.seek(0, io.SEEK_END)
            content.seek(max(0, size - len(_MAGIC)))
            end = content.read()
    except OSError as error:
        raise SourceRejected(file.shown, "", error.strerror or str(error)) from error
    if begin != _MAGIC:
        raise SourceRejected(file.shown, "byte 0", "it is no Parquet file")
    if end != _MAGIC or size < 12:
        reason = "it is cut short: the end of a Parquet file is missing there"
        raise SourceRejected(file.shown, f"byte {size:,}", reason)
