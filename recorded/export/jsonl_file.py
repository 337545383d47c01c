"""Rows as lines of JSON."""

from pathlib import Path

import orjson

from seamlessflow.recorded.export.tables import FileFormat, Row, Table


class JsonlFile:
    """File with a JSON object for each row."""

    def __init__(self, path: Path, table: Table) -> None:
        self._file = path.open("wb")
        self._columns = table.columns

    def append(self, row: Row) -> None:
        """Write the row, its columns in their order."""
        line = {name: row[name] for name in self._columns}
        options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        self._file.write(orjson.dumps(line, option=options))

    def close(self) -> None:
        """End the file."""
        self._file.close()


JSONL = FileFormat("jsonl", ".jsonl", JsonlFile)
