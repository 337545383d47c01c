"""Records to bytes and back: Avro in single-object encoding (`C3 01`, fingerprint, body).

Old logs stay readable: a record is read with the schema it was written with, found by its
fingerprint in `history/`, and handed out in the shape of this release. Maps are written in sorted
order, so that equal records are equal bytes.
"""

from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from typing import Any

from fastavro import schemaless_reader

from schemas.avro.reading import READERS, whole
from schemas.avro.writing import WRITERS, Write
from schemas.generate import references
from schemas.records import RECORDS, Record
from schemas.registry import (
    Schema,
    history,
    parsed,
    raw_schemas,
    schema_fingerprint,
    self_contained,
)

_MARKER = b"\xc3\x01"
_HEADER_BYTES = 10


class UndecodableRecord(ValueError):
    """The bytes are not a record of any schema version that was ever released."""


class _Format:
    """How one record type is written and read."""

    def __init__(self, name: str, raw: Mapping[str, Schema]) -> None:
        schema = self_contained(name, raw)
        self.record = RECORDS[name]
        self.schema = parsed(schema)
        self.header = _MARKER + bytes.fromhex(schema_fingerprint(schema))
        types = {field["name"]: field["type"] for field in raw[name]["fields"]}
        self.composed = {
            field: avro
            for field, avro in types.items()
            if references(avro) or (isinstance(avro, dict) and "items" in avro)
        }
        self.converters: list[tuple[str, Callable[[Any], Any]]] = []


def encode(record: Record) -> bytes:
    """The record's single-object encoding. Raises `ValueError` or `TypeError` for wrong fields."""
    header, write = _WRITERS[type(record)]
    return header + write(record)


def decode(data: bytes) -> Record:
    """The record that `data` encodes. Raises `UndecodableRecord`."""
    read = _READERS.get(data[:_HEADER_BYTES])
    if read is None:
        raise UndecodableRecord(f"no schema has the header {data[:_HEADER_BYTES].hex() or 'empty'}")
    try:
        return read(data)
    except (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise UndecodableRecord(f"body does not fit its schema: {error!r}") from error


def _record(form: _Format, datum: dict[str, Any]) -> Record:
    for name, convert in form.converters:
        datum[name] = convert(datum[name])
    record = object.__new__(form.record)
    vars(record).update(datum)
    return record


def _converter(avro: Any) -> Callable[[Any], Any]:
    """What turns a field as fastavro reads it into what the dataclass holds."""
    names = references(avro)
    if not names:
        return tuple
    form = _FORMATS[names.pop()]
    if isinstance(avro, dict):
        return lambda values: tuple(_record(form, value) for value in values)
    return lambda value: None if value is None else _record(form, value)


def _old_reader(form: _Format, written: Any) -> Callable[[bytes], Record]:
    def read(data: bytes) -> Record:
        body = BytesIO(data)
        body.seek(_HEADER_BYTES)
        datum: Any = schemaless_reader(body, written, form.schema)
        return _record(form, datum)

    return read


def _writers() -> dict[type[Record], tuple[bytes, Write]]:
    forms = ((_FORMATS[name], write) for name, write in WRITERS.of_records(_RAW).items())
    return {form.record: (form.header, write) for form, write in forms}


def _readers() -> dict[bytes, Callable[[bytes], Record]]:
    readers: dict[bytes, Callable[[bytes], Record]] = {
        _FORMATS[name].header: partial(whole, read, _HEADER_BYTES)
        for name, read in READERS.of_records(_RAW).items()
    }
    for name, versions in history().items():
        for version, schema in versions.items():
            header = _MARKER + bytes.fromhex(version)
            if header not in readers and name in _FORMATS:
                readers[header] = _old_reader(_FORMATS[name], parsed(schema))
    return readers


_RAW: Mapping[str, Schema] = raw_schemas()
_FORMATS = {name: _Format(name, _RAW) for name in _RAW}
for _form in _FORMATS.values():
    _form.converters = [(name, _converter(avro)) for name, avro in _form.composed.items()]
_WRITERS = _writers()
_READERS = _readers()
