"""Golden logs: every record of a run of the whole system, as it stood on Kafka.

A file is JSON lines, compressed with xz: one object a record, in the order of topic, partition and
offset. `value` and the values of `headers` are base64; `value` is a record in the encoding of the
release that wrote it, whose schema stays in `schemas/versions`. No file is ever changed.
"""

import base64
import json
import lzma
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

LOGS = Path(__file__).parent / "logs"


class GoldenRecord(NamedTuple):
    """One record as it stood on Kafka, its value still encoded."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: str | None
    headers: tuple[tuple[str, bytes], ...]
    value: bytes


GoldenLog = Mapping[str, Sequence[GoldenRecord]]
"""All records by topic, each topic in the order of partition and offset."""


def write(path: Path, records: Iterable[GoldenRecord]) -> None:
    """Write a new file."""
    lines = (json.dumps(_row(record), separators=(",", ":")) for record in sorted(records))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9))


@cache
def read(path: Path) -> GoldenLog:
    """Return what `write` wrote."""
    log: dict[str, list[GoldenRecord]] = defaultdict(list)
    for line in lzma.decompress(path.read_bytes()).splitlines():
        record = _record(json.loads(line))
        log[record.topic].append(record)
    return log


def _row(record: GoldenRecord) -> dict[str, object]:
    headers = [[name, base64.b64encode(value).decode()] for name, value in record.headers]
    return record._asdict() | {"headers": headers, "value": base64.b64encode(record.value).decode()}


def _record(row: dict[str, object]) -> GoldenRecord:
    headers = tuple((name, base64.b64decode(value)) for name, value in row["headers"])  # type: ignore[attr-defined]
    value = base64.b64decode(row["value"])  # type: ignore[arg-type]
    return GoldenRecord(**(row | {"headers": headers, "value": value}))  # type: ignore[arg-type]
