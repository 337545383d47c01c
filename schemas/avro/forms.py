"""Functions for a schema's types, each made from the functions for its parts. Pure.

Decoding and encoding share this. Both make their functions once for a schema, instead of walking it
for each record.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from seamlessflow.schemas.generate import in_dependency_order
from seamlessflow.schemas.registry import NAMESPACE, Schema

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Forms(Generic[T]):
    """Makers for the functions, by kind of type."""

    primitives: Mapping[str, T]
    optional: Callable[[int, int, T], T]
    """Called with the branch numbers of null and of the other type, and the other's function."""
    array: Callable[[T], T]
    map: Callable[[T], T]
    record: Callable[[Schema, Mapping[str, T]], T]
    """Called with the record's schema and its fields' functions, in order."""

    def of_records(self, raw: Mapping[str, Schema]) -> dict[str, T]:
        """Return every record's function by the record's name."""
        records: dict[str, T] = {}
        return {name: self._of(raw[name], records) for name in in_dependency_order(raw)}

    def of_self_contained(self, schema: Schema) -> T:
        """Return the function for a record whose schema defines all that it refers to."""
        return self._of(schema, {})

    def _of(self, avro: Any, records: dict[str, T]) -> T:
        if isinstance(avro, list):
            null = avro.index("null")
            (other,) = (number for number in range(len(avro)) if number != null)
            return self.optional(null, other, self._of(avro[other], records))
        if isinstance(avro, str):
            return self.primitives.get(avro) or records[avro]
        if avro["type"] == "record":
            fields = {field["name"]: self._of(field["type"], records) for field in avro["fields"]}
            made = self.record(avro, fields)
            records[f"{NAMESPACE}.{avro['name']}"] = made
            return made
        if avro["type"] == "array":
            return self.array(self._of(avro["items"], records))
        return self.map(self._of(avro["values"], records))
