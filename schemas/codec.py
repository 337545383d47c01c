"""Records to bytes and back: Avro in single-object encoding (`C3 01`, fingerprint, body).

Old logs stay readable. A record is decoded with the schema that wrote it, found by its fingerprint
in `versions/`. It is returned in this release's form. Maps are written in sorted order, so that
equal records are equal bytes. `ContainerFile` writes files that any Avro tool reads.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from fastavro import reader, schemaless_reader
from fastavro.write import Writer

from seamlessflow.schemas.avro.decoding import DECODERS, whole
from seamlessflow.schemas.avro.encoding import ENCODERS, Encode
from seamlessflow.schemas.generate import references
from seamlessflow.schemas.records import RECORDS, Record
from seamlessflow.schemas.registry import (
    Schema,
    SchemaVersions,
    parsed,
    raw_schemas,
    schema_fingerprint,
    schema_versions,
    self_contained,
)

MARKER = b"\xc3\x01"
HEADER_BYTES = 10


class UndecodableRecord(ValueError):
    """The bytes are no record in any released schema version."""


class UnknownSchema(UndecodableRecord):
    """The framing is this project's, but the schema's fingerprint is not known."""

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        super().__init__(f"unknown schema fingerprint {fingerprint}")


class _Format:
    """One record type: its class, its header, and how old versions become it."""

    def __init__(self, name: str) -> None:
        self.record = RECORDS[name]
        self._schema = self_contained(name, _RAW)
        self._fields = _RAW[name]["fields"]
        self.header = MARKER + bytes.fromhex(schema_fingerprint(self._schema))

    @cached_property
    def schema(self) -> Any:
        """This release's schema, as fastavro takes it."""
        return parsed(self._schema)

    @cached_property
    def converters(self) -> list[tuple[str, Callable[[Any], Any]]]:
        """Functions for the fields that fastavro decodes to a form that the class does not have."""
        types = {field["name"]: field["type"] for field in self._fields}
        return [
            (name, _converter(avro))
            for name, avro in types.items()
            if references(avro) or (isinstance(avro, dict) and "items" in avro)
        ]


def encode(record: Record) -> bytes:
    """Return the record's encoding. Raises `ValueError` or `TypeError` for wrong fields."""
    header, encode_body = _ENCODERS[type(record)]
    return header + encode_body(record)


def decoder_of(versions: SchemaVersions) -> Callable[[bytes], Record]:
    """Return a `decode` for this release's schemas and `versions` (see `schema_versions`)."""
    decoders = _decoders(versions)

    def decode_record(data: bytes) -> Record:
        header = data[:HEADER_BYTES]
        decode_whole = decoders.get(header)
        if decode_whole is None:
            if len(header) == HEADER_BYTES and header.startswith(MARKER):
                raise UnknownSchema(header[len(MARKER) :].hex())
            raise UndecodableRecord(f"no schema has the header {header.hex() or 'empty'}")
        try:
            return decode_whole(data)
        except (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
            raise UndecodableRecord(f"body does not fit its schema: {error!r}") from error

    return decode_record


def _record(form: _Format, datum: dict[str, Any]) -> Record:
    for name, convert in form.converters:
        datum[name] = convert(datum[name])
    record = object.__new__(form.record)
    vars(record).update(datum)
    return record


def _converter(avro: Any) -> Callable[[Any], Any]:
    """Return a function that turns a field's value from fastavro's form into the dataclass's."""
    names = references(avro)
    if not names:
        return tuple
    form = _FORMATS[names.pop()]
    if isinstance(avro, dict):
        return lambda values: tuple(_record(form, value) for value in values)
    return lambda value: None if value is None else _record(form, value)


def _old_decoder(form: _Format, written: Any) -> Callable[[bytes], Record]:
    """Return a decoder for the record as an earlier release wrote it."""

    def decode_old(data: bytes) -> Record:
        body = BytesIO(data)
        body.seek(HEADER_BYTES)
        datum: Any = schemaless_reader(body, written, form.schema)
        return _record(form, datum)

    return decode_old


def _encoders() -> dict[type[Record], tuple[bytes, Encode]]:
    forms = ((_FORMATS[name], function) for name, function in ENCODERS.of_records(_RAW).items())
    return {form.record: (form.header, function) for form, function in forms}


def _decoders(versions: SchemaVersions) -> dict[bytes, Callable[[bytes], Record]]:
    decoders: dict[bytes, Callable[[bytes], Record]] = {
        _FORMATS[name].header: partial(whole, function, HEADER_BYTES)
        for name, function in DECODERS.of_records(_RAW).items()
    }
    for name, schemas in versions.items():
        for version, schema in schemas.items():
            header = MARKER + bytes.fromhex(version)
            if header not in decoders and name in _FORMATS:
                decoders[header] = _old_decoder(_FORMATS[name], parsed(schema))
    return decoders


_RAW: Mapping[str, Schema] = raw_schemas()
_FORMATS = {name: _Format(name) for name in _RAW}
_ENCODERS = _encoders()
decode = decoder_of(schema_versions())
"""Return the record that bytes encode. Raises `UndecodableRecord`.

For a record from a newer release, this is an `UnknownSchema`.
"""


class ContainerFile:
    """File with records of one type, each appended as it comes."""

    def __init__(self, file: IO[bytes], record: type[Record], metadata: Mapping[str, str]) -> None:
        """Write the file's header with the record's schema and this metadata."""
        schema = parsed(self_contained(record.__name__, raw_schemas()))
        self._writer: Any = Writer(file, schema, metadata=dict(metadata))

    def append(self, record: Record) -> None:
        """Append a record; it is in the file after `flush`."""
        self._writer.write(_plain(record))

    def flush(self) -> None:
        """Write all appended records to the file."""
        self._writer.flush()


def container_metadata(path: Path) -> Mapping[str, str]:
    """Return a container file's metadata. Raises `ValueError` for another kind of file."""
    with path.open("rb") as file:
        return {str(name): str(value) for name, value in reader(file).metadata.items()}


def _plain(value: Any) -> Any:
    """Return a field's value as fastavro takes it."""
    if isinstance(value, Record):
        return {name: _plain(each) for name, each in vars(value).items()}
    return [*map(_plain, value)] if isinstance(value, tuple) else value
