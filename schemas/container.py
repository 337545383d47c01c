"""Avro object container files of records, which any Avro tool reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from fastavro import reader
from fastavro.write import Writer

from seamlessflow.schemas.records import Record
from seamlessflow.schemas.registry import parsed, raw_schemas, self_contained


class ContainerFile:
    """File of records of one type, each appended as it comes."""

    def __init__(self, file: IO[bytes], record: type[Record], metadata: Mapping[str, str]) -> None:
        """Write the file's header with the record's schema and this metadata."""
        schema = parsed(self_contained(record.__name__, raw_schemas()))
        self._writer: Any = Writer(file, schema, metadata=dict(metadata))

    def append(self, record: Record) -> None:
        """Append a record; it is in the file after `flush`."""
        self._writer.write(_plain(record))

    def flush(self) -> None:
        """Write what was appended to the file."""
        self._writer.flush()


def container_metadata(path: Path) -> Mapping[str, str]:
    """Return the metadata of a container file. Raises `ValueError` for another kind of file."""
    with path.open("rb") as file:
        return {str(name): str(value) for name, value in reader(file).metadata.items()}


def _plain(value: Any) -> Any:
    """Return a field's value as fastavro takes it."""
    if isinstance(value, Record):
        return {name: _plain(each) for name, each in vars(value).items()}
    return [*map(_plain, value)] if isinstance(value, tuple) else value
