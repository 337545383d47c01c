"""Decoding values from Avro's binary form, with a function for each type in a schema. Pure.

Each function takes the bytes and its value's place. It returns the value and the next value's
place. Invalid bytes raise `ValueError`, and missing bytes `IndexError` or `EOFError`. `fastavro`
decodes the same, but walks the schema for each record and takes about twice as long.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from struct import Struct
from typing import Any

from seamlessflow.schemas.avro.forms import Forms
from seamlessflow.schemas.records import RECORDS
from seamlessflow.schemas.registry import Schema

DecodeValue = Callable[[bytes, int], tuple[Any, int]]
_Fields = tuple[tuple[str, DecodeValue], ...]
_RUNS_KEPT, _RUN_BYTES = 4, 65_536
"""Most values kept for a run of fields, and the most bytes in one."""
_LONGEST = 1 << 64
_PLACES = range(7, 70, 7)
"""Bit positions of a number's further bytes."""
_ONE = 2
"""The number 1 in zigzag form."""
_eight_bytes = Struct("<d").unpack_from


def whole(decode: DecodeValue, begin: int, data: bytes) -> Any:
    """Return the value that takes `data` from `begin` to its end.

    Raises `EOFError` and `ValueError`.
    """
    try:
        value, end = decode(data, begin)
    except IndexError:
        raise EOFError(f"the record goes on after its {len(data)} bytes") from None
    if end != len(data):
        raise EOFError(f"the record ends at byte {end} of {len(data)}")
    return value


def _record_decoder(schema: Schema, fields: Mapping[str, DecodeValue]) -> DecodeValue:
    """Return a decoder that makes the record's instances, whose attributes are the fields."""
    kind = RECORDS[schema["name"]]
    parts = _parts(schema, fields)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        # The constructor of a frozen dataclass is slower: it sets each field by a call.
        record: Any = object.__new__(kind)
        values = vars(record)
        for single, decode_run in parts:
            for field, decode_field in single:
                values[field], at = decode_field(data, at)
            if decode_run is not None:
                run, at = decode_run(data, at)
                values.update(run)
        return record, at

    return decode


def _parts(
    schema: Schema, fields: Mapping[str, DecodeValue]
) -> Sequence[tuple[_Fields, DecodeValue | None]]:
    """Return the fields in order: runs of single fields, each followed by a run that recurs."""
    parts: list[tuple[_Fields, DecodeValue | None]] = []
    single: _Fields = ()
    recurring = {field["name"] for field in schema["fields"] if field.get("recurring")}
    for recurs, run in groupby(fields.items(), lambda field: field[0] in recurring):
        if recurs:
            parts.append((single, _run_decoder(tuple(run))))
            single = ()
        else:
            single = tuple(run)
    return (*parts, (single, None))


def _run_decoder(fields: _Fields) -> DecodeValue:
    """Return a decoder that makes a dictionary from fields and keeps the last ones that it decoded.

    If the bytes begin with the bytes of a kept run, they are that run again. In Avro's form, no
    value begins with another value.
    """
    runs: list[tuple[bytes, Mapping[str, Any]]] = []

    def decode(data: bytes, at: int) -> tuple[Mapping[str, Any], int]:
        for written, values in runs:
            if data.startswith(written, at):
                return values, at + len(written)
        values = {}
        begin = at
        for field, decode_field in fields:
            values[field], at = decode_field(data, at)
        if at - begin <= _RUN_BYTES:
            runs[:] = [(data[begin:at], values), *runs[: _RUNS_KEPT - 1]]
        return values, at

    return decode


def _optional_decoder(null: int, other: int, decode_value: DecodeValue) -> DecodeValue:
    absent = 2 * null
    present = 2 * other

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        tag = data[at]
        if tag == absent:
            return None, at + 1
        if tag == present:
            return decode_value(data, at + 1)
        raise ValueError(f"byte {at} names no type")

    return decode


def _array_decoder(decode_item: DecodeValue) -> DecodeValue:
    def decode(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        if not data[at]:
            return (), at + 1
        if data[at] == _ONE:
            item, at = decode_item(data, at + 1)
            if not data[at]:
                return (item,), at + 1
            items = [item]
        else:
            items = []
        while True:
            count, at = _block(data, at)
            if not count:
                return tuple(items), at
            for _ in range(count):
                item, at = decode_item(data, at)
                items.append(item)

    return decode


def _map_decoder(decode_value: DecodeValue) -> DecodeValue:
    decode_pairs = _array_decoder(_pair_decoder(decode_value))

    def decode(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        pairs, at = decode_pairs(data, at)
        return dict(pairs), at

    return decode


def _pair_decoder(decode_value: DecodeValue) -> DecodeValue:
    def decode(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        key, at = _string(data, at)
        value, at = decode_value(data, at)
        return (key, value), at

    return decode


def _block(data: bytes, at: int) -> tuple[int, int]:
    """Return the next block's item count; a negative count is followed by the block's size."""
    count, at = _long(data, at)
    if count < 0:
        _, at = _long(data, at)
        count = -count
    # An item takes at least a byte. Without this check, a damaged count would fill the memory.
    if count > len(data):
        raise EOFError(f"{count} items in {len(data)} bytes")
    return count, at


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Return a number in zigzag form."""
    written = data[at]
    if written > 0x7F:
        written, at = _continued(data, at)
        return (written >> 1) ^ -(written & 1), at
    return (written >> 1) ^ -(written & 1), at + 1


def _continued(data: bytes, at: int) -> tuple[int, int]:
    """Return a number with seven bits in each of its several bytes, lowest first."""
    written = data[at] & 0x7F
    for bits in _PLACES:
        at += 1
        more = data[at]
        if more < 0x80:
            written |= more << bits
            if written >= _LONGEST:
                break
            return written, at + 1
        written |= (more & 0x7F) << bits
    raise ValueError(f"the number that ends at byte {at} does not fit in 64 bits")


def _string(data: bytes, at: int) -> tuple[str, int]:
    length = data[at]
    if length & 0x81:  # longer than 63 bytes, or negative
        content, at = _bytes(data, at)
        return content.decode(), at
    end = at + 1 + (length >> 1)
    return data[at + 1 : end].decode(), end


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    written = data[at]
    if written > 0x7F:
        written, at = _continued(data, at)
    else:
        at += 1
    end = at + (written >> 1)
    if written & 1 or end > len(data):
        raise EOFError(f"bytes from {at} to {end} of {len(data)}, or of a negative length")
    return data[at:end], end


def _double(data: bytes, at: int) -> tuple[float, int]:
    end = at + 8
    if end > len(data):
        raise EOFError(f"a number from byte {at} of {len(data)}")
    (number,) = _eight_bytes(data, at)
    return number, end


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    written = data[at]
    if written > 1:
        raise ValueError(f"byte {at} is neither true nor false")
    return written == 1, at + 1


_PRIMITIVES: Mapping[str, DecodeValue] = {
    "string": _string,
    "bytes": _bytes,
    "int": _long,
    "long": _long,
    "boolean": _boolean,
    "double": _double,
}

DECODERS = Forms(_PRIMITIVES, _optional_decoder, _array_decoder, _map_decoder, _record_decoder)
