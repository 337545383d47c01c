"""The user's tasks, read from a file of JSON lines, and the order in which they are drawn.

`read` is the only I/O. The n-th draw is a function of the file, the seed and n, so a scheduler that
takes over continues where the last one stopped.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.errors import SeamlessFlowError


class TasksRejected(SeamlessFlowError):
    """The file of tasks cannot be used; line 0 means the file as a whole."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        self.path = path
        self.line = line
        self.reason = reason
        super().__init__(f"{path}, line {line}: {reason}" if line else f"{path}: {reason}")


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task."""

    task_id: str
    payload: bytes
    """The whole object as JSON with sorted keys."""
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TaskSource:
    """Tasks in the order of their file."""

    rows: tuple[TaskRow, ...]
    by_id: Mapping[str, TaskRow]
    seed: int = 0
    shuffled: bool = True

    def draw(self, number: int) -> TaskRow:
        """Return the task of the `number`-th draw; each pass over the file has its own order."""
        finished_passes, place = divmod(number, len(self.rows))
        return self.rows[self._order(finished_passes)[place]]

    def _order(self, finished_passes: int) -> list[int]:
        """Return the order of a pass, sorted by a hash: the same in every release of Python."""
        places = list(range(len(self.rows)))
        if not self.shuffled:
            return places
        return sorted(places, key=lambda place: _hash(f"{self.seed}/{finished_passes}/{place}"))


def read(path: Path, seed: int = 0, shuffled: bool = True) -> TaskSource:
    """Return the tasks in a file. Raises `TasksRejected`."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise TasksRejected(path, 0, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise TasksRejected(path, 0, str(error)) from error
    rows = [_row(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise TasksRejected(path, 0, "there are no tasks in it")
    by_id = {row.task_id: row for row in rows}
    if len(by_id) < len(rows):
        raise TasksRejected(path, 0, "two tasks have the same id")
    return TaskSource(tuple(rows), by_id, seed, shuffled)


def _row(path: Path, number: int, line: str) -> TaskRow:
    try:
        task: Any = json.loads(line)
    except ValueError as error:
        raise TasksRejected(path, number, str(error)) from error
    if not isinstance(task, dict) or not isinstance(task.get("id"), str | int):
        raise TasksRejected(path, number, 'not a JSON object with an "id"')
    metadata = task.get("metadata")
    words = metadata if isinstance(metadata, dict) else {}
    return TaskRow(
        str(task["id"]),
        json.dumps(task, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(),
        {str(name): str(value) for name, value in words.items()},
    )


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
