"""Rows of Parquet files that are brought in. Needs pyarrow (extra `parquet`)."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.recorded.importing.foreign_row import RowRead

_ROWS = 64
"""Rows that are in memory at a time."""


def parquet_rows(path: Path) -> Iterator[RowRead]:
    """Yield the rows of a file. Raises `SettingsRejected` for a file of another format."""
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS):
                yield from batch.to_pylist()
    except pa.ArrowInvalid as error:
        raise SettingsRejected("FILE", f"{path} is no Parquet file: {error}") from error
