"""Values to Avro's binary form: a function for each type of a schema. Pure.

`fastavro` writes the same bytes; walking the schema anew for each record it takes twice as long.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Any

from schemas.avro.forms import Forms

Write = Callable[[Any], bytes]
_LONGEST = 1 << 63
_SHORT = 4096
_eight_bytes = Struct("<d").pack


def _record_writer(_: str, fields: Mapping[str, Write]) -> Write:
    """For instances whose attributes are the fields."""
    writers = tuple(fields.items())

    def write(record: Any) -> bytes:
        values = vars(record)
        return b"".join([write_field(values[name]) for name, write_field in writers])

    return write


def _optional_writer(null: int, other: int, write_value: Write) -> Write:
    absent, tag = _long(null), _long(other)
    return lambda value: absent if value is None else tag + write_value(value)


def _array_writer(write_item: Write) -> Write:
    def write(items: Any) -> bytes:
        if not items:
            return b"\0"
        return b"%b%b\0" % (_long(len(items)), b"".join([write_item(item) for item in items]))

    return write


def _map_writer(write_value: Write) -> Write:
    """In sorted order, so that equal maps are equal bytes."""

    def write(items: Any) -> bytes:
        if not items:
            return b"\0"
        pairs = [_string(key) + write_value(items[key]) for key in sorted(items)]
        return b"%b%b\0" % (_long(len(items)), b"".join(pairs))

    return write


@lru_cache(_SHORT, typed=True)  # times, mostly, of which many are the same
def _variable(number: int) -> bytes:
    """Zigzag, seven bits a byte."""
    if not -_LONGEST <= number < _LONGEST:
        raise ValueError(f"{number} does not fit in 64 bits")
    left = (number << 1) ^ (number >> 63)
    written = bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    written.append(left)
    return bytes(written)


_NUMBERS = [_variable(number) for number in range(_SHORT)]


def _long(number: int) -> bytes:
    return _NUMBERS[number] if 0 <= number < _SHORT else _variable(number)


def _string(text: str) -> bytes:
    return _bytes(str.encode(text))


def _bytes(data: bytes) -> bytes:
    length = len(data)
    return (_NUMBERS[length] if length < _SHORT else _variable(length)) + data


def _double(number: float) -> bytes:
    return _eight_bytes(number + 0.0)  # a `TypeError` for what is no number


def _boolean(value: bool) -> bytes:
    return b"\1" if value else b"\0"


_PRIMITIVES: Mapping[str, Write] = {
    "string": _string,
    "bytes": _bytes,
    "int": _long,
    "long": _long,
    "boolean": _boolean,
    "double": _double,
}

ENCODERS = Forms(_PRIMITIVES, _optional_writer, _array_writer, _map_writer, _record_writer)
