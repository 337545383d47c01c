"""An export's tables: their columns' names and kinds, and the files' formats.

JSON lines, the plainest format, are written here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import numpy as np
import orjson
from numpy.typing import NDArray

Cell = str | int | float | NDArray[np.int32] | NDArray[np.float32] | NDArray[np.bool_] | None
TableRow = Mapping[str, Cell]
"""A row: a value for each column of its table."""


DOCUMENT = "document"
"""Column with a whole JSON document. In JSON lines, a row is only that document."""


class Kind(StrEnum):
    """Kind of values in a column; each value may also be None."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    IDS = "ids"
    """Array of int32."""
    FLOATS = "floats"
    """Array of float32."""
    FLAGS = "flags"
    """Array of booleans."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, with a file for each partition of `sessions`."""

    name: str
    columns: Mapping[str, Kind]

    def path(self, directory: Path, partition: int, suffix: str) -> Path:
        """Return the place of the partition's whole file."""
        return directory / self.name / f"{self.name}-{partition:03}{suffix}"


class RowFile(Protocol):
    """File with one table's rows."""

    def append(self, row: TableRow) -> None:
        """Take a row; some may wait in memory."""
        ...

    def close(self) -> None:
        """Write what waits, and end the file."""
        ...


@dataclass(frozen=True, slots=True)
class FileFormat:
    """Format in which files are written."""

    name: str
    suffix: str
    open: Callable[[Path, Table], RowFile]


class JsonlFile:
    """File with a JSON object for each row."""

    def __init__(self, path: Path, table: Table) -> None:
        self._file = path.open("wb")
        self._columns = table.columns

    def append(self, row: TableRow) -> None:
        """Write the row with its columns in order, or only the document that it has."""
        if DOCUMENT in self._columns:
            self._file.write(f"{row[DOCUMENT]}\n".encode())
            return
        line = {name: row[name] for name in self._columns}
        options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        self._file.write(orjson.dumps(line, option=options))

    def close(self) -> None:
        """End the file."""
        self._file.close()


JSONL = FileFormat("jsonl", ".jsonl", JsonlFile)
