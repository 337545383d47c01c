"""Rows as Parquet, written and read. Only this module uses pyarrow (extra `parquet`)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.recorded.export.tables import FileFormat, Kind, Table, TableRow

_GROUP_TOKENS = 1 << 20
_GROUP_ROWS = 10_000
"""A row group ends at either limit, so that a file needs little memory, however long it is."""
_KINDS = {
    Kind.TEXT: pa.string(),
    Kind.INTEGER: pa.int64(),
    Kind.NUMBER: pa.float64(),
    Kind.IDS: pa.list_(pa.int32()),
    Kind.FLOATS: pa.list_(pa.float32()),
    Kind.FLAGS: pa.list_(pa.bool_()),
}
_READ_ROWS = 64
"""Rows that are in memory at a time."""


class ParquetRows:
    """Parquet file that is written in row groups with a limited size."""

    def __init__(self, path: Path, table: Table) -> None:
        self._schema = pa.schema([(name, _KINDS[kind]) for name, kind in table.columns.items()])
        # Few log-probs are equal, so a dictionary for them would not help.
        repeated = [name for name, kind in table.columns.items() if kind is not Kind.FLOATS]
        self._writer = pq.ParquetWriter(
            path, self._schema, compression="zstd", use_dictionary=repeated
        )
        self._columns: dict[str, list[Any]] = {name: [] for name in table.columns}
        self._rows = self._tokens = 0

    def append(self, row: TableRow) -> None:
        """Keep the row until its group is full."""
        for name, values in self._columns.items():
            values.append(row[name])
        self._rows += 1
        self._tokens += max(
            len(value) for value in row.values() if isinstance(value, np.ndarray | str)
        )
        if self._tokens >= _GROUP_TOKENS or self._rows >= _GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        """Write the last group, and end the file."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            columns = [_column(self._columns[field.name], field.type) for field in self._schema]
            self._writer.write_table(pa.table(columns, schema=self._schema))
        for values in self._columns.values():
            values.clear()
        self._rows = self._tokens = 0


PARQUET = FileFormat("parquet", ".parquet", ParquetRows)


def parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield a file's rows. Raises `SettingsRejected` for a file in another format."""
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_READ_ROWS):
                yield from batch.to_pylist()
    except pa.ArrowInvalid as error:
        raise SettingsRejected("FILE", f"{path} is no Parquet file: {error}") from error


def _column(values: list[Any], kind: Any) -> Any:
    if not pa.types.is_list(kind):
        return pa.array(values, kind)
    offsets = np.cumsum([0, *map(len, values)], dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(np.concatenate(values), kind.value_type))
