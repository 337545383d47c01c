"""The user's tasks: a JSON object a line, and the order in which they are drawn.

`read` is the only I/O. The n-th draw is a function of the file, the seed and n, so a scheduler that
takes over goes on where the last one was.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.errors import SeamlessFlowError


class TasksRejected(SeamlessFlowError):
    """The file of tasks cannot be used; line 0: as a whole."""

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
    """The object as JSON with sorted keys."""
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TaskSource:
    """Tasks in the order of their file."""

    rows: tuple[TaskRow, ...]
    by_id: Mapping[str, TaskRow]
    seed: int = 0
    shuffled: bool = True

    def draw(self, number: int) -> TaskRow:
        """The task of the `number`-th draw; after the last one the file begins anew, reordered."""
        epoch, place = divmod(number, len(self.rows))
        return self.rows[self._order(epoch)[place]]

    def _order(self, epoch: int) -> list[int]:
        """Sorted by a hash, so that it is the same in every release of Python."""
        places = list(range(len(self.rows)))
        if not self.shuffled:
            return places
        return sorted(places, key=lambda place: _hash(f"{self.seed}/{epoch}/{place}"))


def read(path: Path, seed: int = 0, shuffled: bool = True) -> TaskSource:
    """The tasks in a file. Raises `TasksRejected`."""
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
