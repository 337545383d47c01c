"""Fields of records as texts, whatever is in them. Pure.

A field of bytes holds what its name says: ids, log-probs, masks, hashes or JSON.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from seamlessflow.infra.kafka.unreadable import Raw, Unreadable
from seamlessflow.recorded.dead_letters.listing import hex_dump
from seamlessflow.schemas.tokens import TOKEN_BYTES, unpack

SHORT = 160
"""Most characters that a field shows without a click."""
MOST_CHARACTERS = 20_000
"""Most characters that a field shows in a list of records."""
WHOLE = 400_000
"""Most characters that a field shows on a record's own page."""
_EMPTY: tuple[object, ...] = (None, "", b"", (), {})
_GIST = (
    *("worker", "process", "role", "state", "step", "version", "group_id", "sample", "turn_id"),
    *("status", "finish_reason", "reason", "what", "detail", "policy"),
)
_MOST_GIST = 4
_DATES_MS = range(1_000_000_000_000, 100_000_000_000_000)
"""Numbers that are times since the epoch, not durations."""


@dataclass(frozen=True, slots=True)
class FieldText:
    """A field: its name, its text up to a limit, and how much is left out."""

    name: str
    text: str
    left_out: int = 0
    """Characters that the limit left out."""


def record_fields(record: Any, most: int = MOST_CHARACTERS) -> tuple[FieldText, ...]:
    """Return the fields that are not empty. For garbage, return its bytes or why it is garbage."""
    if isinstance(record, Raw):
        return tuple(_limited(name, text, most) for name, text in _raw(record.value, most))
    if isinstance(record, Unreadable):
        return (FieldText("error", record.error),)
    return tuple(_limited(name, text, most) for name, text in _named(record))


def gist_of(record: Any) -> str:
    """Return the few fields by which a reader knows a record."""
    if isinstance(record, Unreadable):
        return _cut(record.error)
    if isinstance(record, Raw):
        return f"{len(record.value)} bytes"
    values = ((name, getattr(record, name, None)) for name in _GIST)
    parts = [f"{name} {value}" for name, value in values if value not in _EMPTY]
    return _cut(", ".join(parts[:_MOST_GIST]))


def readable_bytes(value: bytes) -> str:
    """Return bytes as text if they are UTF-8, else in hex."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex(" ")


def _raw(value: bytes, most: int) -> Iterator[tuple[str, str]]:
    yield "bytes", hex_dump(value, max(16, min(len(value), most // 5)))


def _named(record: Any) -> Iterator[tuple[str, str]]:
    for field in fields(record):
        value = getattr(record, field.name)
        if value not in _EMPTY:
            yield field.name, _text(field.name, value)


def _text(name: str, value: Any) -> str:
    if isinstance(value, bytes):
        return _bytes(name, value)
    if is_dataclass(value):
        return ", ".join(f"{inner} {text}" for inner, text in _named(value))
    if isinstance(value, tuple | list):
        return "\n".join(_text(name, element) for element in value)
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {value[key]}" for key in value)
    if name.endswith("_ms") and isinstance(value, int) and value in _DATES_MS:
        return f"{value} ({datetime.fromtimestamp(value / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC)"
    return str(value)


def _bytes(name: str, value: bytes) -> str:
    if name.endswith(("ids", "tokens")) and len(value) % TOKEN_BYTES == 0:
        ids = unpack(value)
        return f"{len(ids)} tokens: {' '.join(map(str, ids))}"
    if name.endswith("logprobs") and len(value) % TOKEN_BYTES == 0:
        logprobs = np.frombuffer(value, "<f4")
        texts = " ".join(f"{logprob:.4g}" for logprob in logprobs)
        return f"{len(logprobs)} log-probs, mean {logprobs.mean():.3f}: {texts}"
    if name == "loss_mask":
        return f"{sum(value)} of {len(value)} tokens may be trained"
    if name.endswith(("hash", "_key", "calls")):
        return value.hex()
    return readable_bytes(value)


def _limited(name: str, text: str, most: int) -> FieldText:
    return FieldText(name, text[:most], max(0, len(text) - most))


def _cut(text: str) -> str:
    return text if len(text) <= SHORT else f"{text[:SHORT]}..."
