"""Files of rows that are brought in, as lines of JSON."""

from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import xxhash

from seamlessflow.infra.json_lines import json_fault, json_lines
from seamlessflow.recorded.importing.foreign_row import ForeignRowRejected, RowRead

Rows = Callable[[Path], Iterator[RowRead]]
"""Reader of a file's rows in their order."""
_BLOCK = 1 << 20


def jsonl_rows(path: Path) -> Iterator[RowRead]:
    """Yield the objects of a file; raises `ForeignRowRejected` for a line that is none."""
    with path.open("rb") as file:
        for line in json_lines(file):
            try:
                row = orjson.loads(line.content)
            except orjson.JSONDecodeError as error:
                reason = f"no JSON: {json_fault(line.content, error)}"
                raise ForeignRowRejected(str(path), line.number, reason) from None
            if not isinstance(row, dict):
                raise ForeignRowRejected(str(path), line.number, "no JSON object")
            yield row


def digest(path: Path) -> str:
    """Return what stands for the content of a file."""
    hasher = xxhash.xxh3_64()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            hasher.update(block)
    return hasher.hexdigest()
