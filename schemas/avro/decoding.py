"""Values from Avro's binary form: a function for each type of a schema. Pure.

Each takes the bytes and where its value begins, and returns the value and where the next begins.
What does not fit raises `ValueError`, or at the end of the bytes `IndexError` or `EOFError`.
`fastavro` reads the same; walking the schema anew for each record it takes three times as long.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any

from schemas.avro.forms import Forms
from schemas.records import RECORDS

Read = Callable[[bytes, int], tuple[Any, int]]
_LONGEST = 1 << 64
_MOST_BYTES = 10
_eight_bytes = Struct("<d").unpack_from


def whole(read: Read, begin: int, data: bytes) -> Any:
    """The value that `data` holds from `begin` to its end. Raises `EOFError`, `ValueError`."""
    try:
        value, end = read(data, begin)
    except IndexError:
        raise EOFError(f"the record goes on after its {len(data)} bytes") from None
    if end != len(data):
        raise EOFError(f"the record ends at byte {end} of {len(data)}")
    return value


def _record_reader(name: str, fields: Mapping[str, Read]) -> Read:
    """For instances of the class of that name, whose attributes are the fields."""
    kind = RECORDS[name]
    readers = tuple(fields.items())

    def read(data: bytes, at: int) -> tuple[Any, int]:
        record: Any = object.__new__(kind)
        values = vars(record)
        for field, read_field in readers:
            values[field], at = read_field(data, at)
        return record, at

    return read


def _optional_reader(null: int, other: int, read_value: Read) -> Read:
    absent, present = 2 * null, 2 * other

    def read(data: bytes, at: int) -> tuple[Any, int]:
        tag = data[at]
        if tag == absent:
            return None, at + 1
        if tag == present:
            return read_value(data, at + 1)
        raise ValueError(f"byte {at} names no type")

    return read


def _array_reader(read_item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        if not data[at]:
            return (), at + 1
        items: list[Any] = []
        while True:
            count, at = _block(data, at)
            if not count:
                return tuple(items), at
            for _ in range(count):
                item, at = read_item(data, at)
                items.append(item)

    return read


def _map_reader(read_value: Read) -> Read:
    read_pairs = _array_reader(_pair_reader(read_value))

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        pairs, at = read_pairs(data, at)
        return dict(pairs), at

    return read


def _pair_reader(read_value: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        key, at = _string(data, at)
        value, at = read_value(data, at)
        return (key, value), at

    return read


def _block(data: bytes, at: int) -> tuple[int, int]:
    """How many items come next. A negative number is followed by their size in bytes."""
    count, at = _long(data, at)
    if count < 0:
        _, at = _long(data, at)
        count = -count
    if count > len(data):
        raise EOFError(f"{count} items in {len(data)} bytes")
    return count, at


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Zigzag, seven bits a byte."""
    written = data[at]
    at += 1
    if written > 0x7F:
        written, at = _continued(data, at, written & 0x7F)
    return (written >> 1) ^ -(written & 1), at


def _continued(data: bytes, at: int, written: int) -> tuple[int, int]:
    for place in range(1, _MOST_BYTES):
        more = data[at]
        at += 1
        written |= (more & 0x7F) << 7 * place
        if more <= 0x7F:
            if written >= _LONGEST:
                break
            return written, at
    raise ValueError(f"the number that ends at byte {at} does not fit in 64 bits")


def _string(data: bytes, at: int) -> tuple[str, int]:
    length = data[at]
    if length & 0x81:  # longer than 63 bytes, or negative
        found, at = _bytes(data, at)
        return found.decode(), at
    end = at + 1 + (length >> 1)
    return data[at + 1 : end].decode(), end


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    written = data[at]
    at += 1
    if written > 0x7F:
        written, at = _continued(data, at, written & 0x7F)
    end = at + ((written >> 1) ^ -(written & 1))
    if not at <= end <= len(data):
        raise EOFError(f"bytes from {at} to {end} of {len(data)}")
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


_PRIMITIVES: Mapping[str, Read] = {
    "string": _string,
    "bytes": _bytes,
    "int": _long,
    "long": _long,
    "boolean": _boolean,
    "double": _double,
}

DECODERS = Forms(_PRIMITIVES, _optional_reader, _array_reader, _map_reader, _record_reader)
