"""Encoding of records in the schemas of an earlier release. Pure.

A field that the earlier schema lacks is left out, since readers of all releases then see its
default. A field with another value is refused, unless its schema says `"droppable": true`. Such a
field describes its writer for people, or its absence means what holds under a pin (one policy).
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, replace
from typing import Any

from seamlessflow.schemas.avro.encoding import ENCODERS, Encode
from seamlessflow.schemas.avro.forms import Forms
from seamlessflow.schemas.records import RECORDS
from seamlessflow.schemas.registry import Schema


class NotInRelease(ValueError):
    """A record, or the value of a field, has no place in the schemas of an earlier release."""

    def __init__(self, release: str, record: str, field: str = "") -> None:
        self.release = release
        self.record = record
        self.field = field
        self.place = f"{record}.{field}" if field else record
        super().__init__(f"release {release} has no {self.place}")


def earlier_encoders(release: str, raw: Mapping[str, Schema]) -> Forms[Encode]:
    """Return the makers of encoders to a release's schemas; `raw` has this release's schemas."""
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
