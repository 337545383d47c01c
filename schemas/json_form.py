"""Records as JSON objects, for files and HTTP bodies. Bytes are base64.

Members have the names of the record's fields. A missing member gets the field's default, and any
other member is refused.
"""

from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from seamlessflow.schemas.records import Record

R = TypeVar("R", bound=Record)
RECORD_JSON = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")
"""Pydantic settings under which a model's records have this form."""
_adapters: dict[type[Record], TypeAdapter[Any]] = {}


def to_json(record: Record) -> bytes:
    """Return the record as a JSON object."""
    return _adapter(type(record)).dump_json((record,))[1:-1]


def from_json(kind: type[R], text: bytes) -> R:
    """Return the record that a JSON object stands for.

    Raises `ValueError` with the first fault's place and reason.
    """
    try:
        (record,) = _adapter(kind).validate_json(b"[%b]" % text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"][1:]))
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from None
    return record  # type: ignore[no-any-return]


def _adapter(kind: type[Record]) -> TypeAdapter[Any]:
    made = _adapters.get(kind)
    if made is None:
        # A dataclass takes these settings from its container, here a tuple with one item.
        made = _adapters[kind] = TypeAdapter(tuple[kind], config=RECORD_JSON)  # type: ignore[valid-type]
    return made
