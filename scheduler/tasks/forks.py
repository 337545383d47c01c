"""Forks of recorded sessions in a JSON lines file, as `seamlessflow replay fork` writes it.

A line has `id` (unique), `task` (the recorded session's task object), `samples` (number in each
group) and `fork`. The latter is a `ForkedPrefix` in the form of `schemas/json_form.py`.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from seamlessflow.scheduler.tasks.file import LineForm, TaskFile, task_row
from seamlessflow.scheduler.tasks.source import TaskRow
from seamlessflow.schemas.forks import check_form
from seamlessflow.schemas.json_form import from_json, to_json
from seamlessflow.schemas.json_text import read_json, write_json
from seamlessflow.schemas.records import ForkedPrefix
from seamlessflow.schemas.topics import REQUESTS

LARGEST_FORK_BYTES = REQUESTS.max_record_bytes - 64 * 1024
"""Most bytes for a `fork` member: the gateway adds a head to it and takes no larger body."""
_ROWS_KEPT = 32


def fork_line(task_id: str, task: Mapping[str, object], samples: int, fork: ForkedPrefix) -> bytes:
    """Return a line of the file, without its end."""
    head = write_json({"id": task_id, "task": task, "samples": samples})
    return b'%b,"fork":%b}' % (head[:-1], to_json(fork))


def fork_file(path: Path, split: str = "") -> TaskFile:
    """Return the forks in a file, after checking each. Raises `TasksRejected`."""
    return TaskFile(path, LineForm(fork_id, _fork_row, _metadata_of, _ROWS_KEPT), split)


def fork_id(line: bytes) -> str:
    """Return the fork's id in a line, after checking the line. Raises `ValueError`."""
    return _fork_row(line).task_id


def _metadata_of(line: bytes) -> tuple[str, Mapping[str, Any]]:
    """Return id and metadata of the fork in a checked line. Raises `ValueError`."""
    fork: Any = read_json(line)
    return fork["id"], fork["task"].get("metadata") or {}


def _fork_row(line: bytes) -> TaskRow:
    """Return the fork in a line. Raises `ValueError`."""
    read: Any = read_json(line)
    members = read if isinstance(read, dict) else {}
    match members:
        case {"id": str(task_id), "task": dict(task), "samples": int(samples), "fork": dict(fork)}:
            row = task_row(task_id, task)
        case _:
            raise ValueError('not a JSON object with "id", "task", "samples" and "fork"')
    if samples < 1:
        raise ValueError(f"samples is {samples}, not 1 or more")
    text = orjson.dumps(fork)
    if len(text) > LARGEST_FORK_BYTES:
        raise ValueError(f"the fork has {len(text)} bytes, more than {LARGEST_FORK_BYTES}")
    try:
        prefix = from_json(ForkedPrefix, text)
        check_form(prefix)
    except ValueError as error:
        raise ValueError(f"fork.{error}") from None
    return replace(row, samples=samples, fork=prefix)
