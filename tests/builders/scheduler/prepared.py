"""Sources of tasks in all forms, and what is prepared from them."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from seamlessflow.scheduler.tasks.file import TaskFile
from seamlessflow.scheduler.tasks.prepared.preparing import prepared_file
from seamlessflow.scheduler.tasks.prepared.settings import TaskDataSection

Rows = Sequence[Mapping[str, Any]]
Writer = Callable[[Path, Rows], str]
"""Writes rows into a folder and returns the name of the source."""


def json_lines(folder: Path, rows: Rows) -> str:
    return _bytes(folder / "rows.jsonl", _lines(rows))


def json_list(folder: Path, rows: Rows) -> str:
    return _bytes(folder / "rows.json", json.dumps(list(rows), indent=1).encode())


def zipped_list(folder: Path, rows: Rows) -> str:
    return _bytes(folder / "rows.json.gz", gzip.compress(json.dumps(list(rows)).encode()))


def lines_called_json(folder: Path, rows: Rows) -> str:
    return _bytes(folder / "rows.json", _lines(rows))


def zipped_lines(folder: Path, rows: Rows) -> str:
    return _bytes(folder / "rows.jsonl.gz", gzip.compress(_lines(rows)))


def zstd_lines(folder: Path, rows: Rows) -> str:
    compressed = pa.Codec("zstd").compress(_lines(rows), asbytes=True)
    return _bytes(folder / "rows.jsonl.zst", compressed)


def csv_file(folder: Path, rows: Rows, delimiter: str = ",") -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return _bytes(folder / "rows.csv", text.getvalue().encode())


def parquet(folder: Path, rows: Rows) -> str:
    path = folder / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=2)
    return str(path)


def parquet_shards(folder: Path, rows: Rows) -> str:
    for number, row in enumerate(rows):
        pq.write_table(pa.Table.from_pylist([row]), folder / f"part-{number:05}.parquet")
    return str(folder / "part-*.parquet")


def saved_dataset(folder: Path, rows: Rows) -> str:
    """The form of `Dataset.save_to_disk`: Arrow's streams, named by `state.json`."""
    directory = folder / "saved"
    directory.mkdir()
    table = pa.Table.from_pylist(list(rows))
    names = []
    for number, part in enumerate((table.slice(0, 1), table.slice(1))):
        names.append({"filename": f"data-{number:05}-of-00002.arrow"})
        with pa.ipc.new_stream(directory / names[-1]["filename"], table.schema) as stream:
            stream.write_table(part)
    (directory / "state.json").write_text(json.dumps({"_data_files": names}))
    (directory / "dataset_info.json").write_text("{}")
    return str(directory)


def arrow_file(folder: Path, rows: Rows) -> str:
    table = pa.Table.from_pylist(list(rows))
    with pa.ipc.new_file(folder / "rows.arrow", table.schema) as file:
        file.write_table(table)
    return str(folder / "rows.arrow")


WRITERS: Mapping[str, Writer] = {
    writer.__name__: writer
    for writer in (
        *(json_lines, json_list, zipped_list, lines_called_json, zipped_lines, zstd_lines),
        *(csv_file, parquet, parquet_shards, saved_dataset, arrow_file),
    )
}


def prepared(
    source: str, folder: Path, for_evaluation: bool = False, **choice: Any
) -> list[dict[str, Any]]:
    """Return the tasks that are prepared from a source, in their order."""
    path = prepared_path(source, folder, for_evaluation, **choice)
    return [json.loads(row.payload) for row in TaskFile(path)]


def prepared_path(source: str, folder: Path, for_evaluation: bool = False, **choice: Any) -> Path:
    section = TaskDataSection(**choice)
    return prepared_file(source, section, for_evaluation, folder / "prepared", lambda _: None)


def _lines(rows: Rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _bytes(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)
