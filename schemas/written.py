"""The schemas in which a process writes: its own release's, or a pinned earlier release's.

The pin stays until all processes run the new release, so that readers from the earlier one can
still read. A field that the earlier schema lacks is left out, since readers from all releases then
see its default. If it has another value, it is refused, unless its schema says `"droppable": true`.
Such a field describes its writer for people, or its absence means what holds under a pin (one
policy).
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, replace
from functools import partial
from typing import Any

from seamlessflow.schemas.avro.encoding import ENCODERS, Encode
from seamlessflow.schemas.avro.forms import Forms
from seamlessflow.schemas.codec import MARKER, encode
from seamlessflow.schemas.records import RECORDS, Record
from seamlessflow.schemas.registry import Schema, SchemaVersions, raw_schemas, schema_versions
from seamlessflow.schemas.releases import SchemaRelease, release_named, this_release


class NotInRelease(ValueError):
    """A record, or a field's value, has no place in an earlier release's schemas."""

    def __init__(self, release: str, record: str, field: str = "") -> None:
        self.release = release
        self.record = record
        self.field = field
        self.place = f"{record}.{field}" if field else record
        super().__init__(f"release {release} has no {self.place}")


def earlier_encoders(release: str, raw: Mapping[str, Schema]) -> Forms[Encode]:
    """Return the encoder makers for an earlier release's schemas; `raw` are this release's."""
    droppable = {
        (name, field["name"])
        for name, schema in raw.items()
        for field in schema["fields"]
        if field.get("droppable")
    }

    def record(schema: Schema, encoders: Mapping[str, Encode]) -> Encode:
        name = schema["name"]
        encode = ENCODERS.record(schema, encoders)
        lacking = [
            (field.name, _default(field))
            for field in fields(RECORDS[name])  # type: ignore[arg-type]
            if field.name not in encoders and (name, field.name) not in droppable
        ]

        def checked(value: Any) -> bytes:
            for field, default in lacking:
                if getattr(value, field) != default:
                    raise NotInRelease(release, name, field)
            return encode(value)

        return checked if lacking else encode

    return replace(ENCODERS, record=record)


def _default(field: Field[Any]) -> Any:
    make: Callable[[], Any] | Any = field.default_factory
    return field.default if make is MISSING else make()


EncodeRecord = Callable[[Record], bytes]


def encoder_of(version: str) -> EncodeRecord:
    """Return the function that encodes records as a release does; it may raise `NotInRelease`.

    For a release with this one's schemas, it is `encode` itself. Raises `UnknownRelease`.
    """
    return encoder_as(release_named(version), this_release(), raw_schemas(), schema_versions())


def encoder_as(
    release: SchemaRelease, this: SchemaRelease, raw: Mapping[str, Schema], versions: SchemaVersions
) -> EncodeRecord:
    """Return `encoder_of(release.version)` for a release that `this` knows.

    `raw`: `this` release's schemas. `versions`: both releases' schemas (see `schema_versions`).
    """
    changed = this.changed_since(release)
    if not changed:
        return encode
    forms = earlier_encoders(release.version, raw)

    def encoder(name: str) -> EncodeRecord:
        fingerprint = release.fingerprints.get(name)
        if fingerprint is None:
            return partial(_refuse, release.version, name)
        header = MARKER + bytes.fromhex(fingerprint)
        body: Encode = forms.of_self_contained(versions[name][fingerprint])
        return lambda record: header + body(record)

    encoders = {RECORDS[name]: encoder(name) for name in changed}

    def encode_earlier(record: Record) -> bytes:
        return encoders.get(type(record), encode)(record)

    return encode_earlier


def _refuse(version: str, name: str, _: Record) -> bytes:
    raise NotInRelease(version, name)
