"""Records for the terminal: topic, place, and each field that is not empty. Pure."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.show.session_view import Spell
from seamlessflow.schemas.tokens import unpack

_MOST_CHARACTERS = 160
_EMPTY: tuple[object, ...] = (None, "", b"", (), {})


def records_view(items: Sequence[Received], spell: Spell | None) -> Group:
    """Return a block for each record, in the given order; without `spell` tokens are ids."""
    return Group(*(part for item in items for part in _block(item, spell)))


def _block(item: Received, spell: Spell | None) -> tuple[Text, Padding]:
    written = datetime.fromtimestamp(item.timestamp_ms / 1000, UTC)
    headline = Text.assemble(
        (type(item.record).__name__, "bold"),
        (f"  {item.topic} {item.partition}:{item.offset}", "cyan"),
        (f"  key {item.key}" if item.key else "", "dim"),
        (f"  {written:%H:%M:%S}.{item.timestamp_ms % 1000:03}", "dim"),
    )
    table = Table(box=None, show_header=False, pad_edge=False)
    for field, value in shown_fields(item.record, spell):
        table.add_row(Text(field, "dim"), Text(value))
    return headline, Padding(table, (0, 0, 1, 2), expand=False)


def shown_fields(record: Any, spell: Spell | None) -> list[tuple[str, str]]:
    """Return each field's name and text, without empty fields."""
    named = [(field.name, getattr(record, field.name)) for field in fields(record)]
    return [(name, _shown(name, value, spell)) for name, value in named if value not in _EMPTY]


def _shown(name: str, value: Any, spell: Spell | None) -> str:
    if isinstance(value, bytes):
        return _bytes(name, value, spell)
    if is_dataclass(value):
        inside = shown_fields(value, spell)
        return _cut(", ".join(f"{field} {text}" for field, text in inside))
    if isinstance(value, tuple | list):
        return _cut("; ".join(_shown(name, element, spell) for element in value))
    return _cut(str(value))


def _bytes(name: str, value: bytes, spell: Spell | None) -> str:
    """Spell a field of bytes by the contract's naming: ids, log-probs, masks, hashes, JSON."""
    if name.endswith(("ids", "tokens")):
        ids = unpack(value)
        text = repr(spell(ids)) if spell else " ".join(map(str, ids))
        return _cut(f"{len(ids)} tokens: {text}")
    if name.endswith("logprobs"):
        logprobs = np.frombuffer(value, "<f4")
        return f"{len(logprobs)} log-probs, mean {logprobs.mean():.3f}"
    if name == "loss_mask":
        return f"{sum(value)} of {len(value)} tokens may be trained"
    if name.endswith(("hash", "_key", "calls")):
        return value.hex()
    if name in ("data", "trajectory"):
        return f"{len(value)} bytes"
    return _cut(value.decode(errors="replace"))


def _cut(text: str) -> str:
    if len(text) <= _MOST_CHARACTERS:
        return text
    return f"{text[:_MOST_CHARACTERS]}... ({len(text)} characters)"
