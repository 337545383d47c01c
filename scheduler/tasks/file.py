"""The user's tasks in a JSON lines file, read one at a time.

Opening the file reads it once, to find each line's place and to check its task and unique id. Then
20 bytes a task stay in memory, and a task is read when it is needed. The file stays open: a new
file in its place changes nothing until the next start.
"""

import itertools
import json
import os
import weakref
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import xxhash

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.json_lines import json_fault, json_lines, line_content
from seamlessflow.scheduler.tasks.source import TaskRow, TaskSource
from seamlessflow.schemas.json_text import read_json

_ROWS_KEPT = 1_024
"""Number of tasks kept in memory: tasks with groups under way are read again at each attempt."""
_OURS = ("id", "group_size", "min_group_size", "turn_limit", "metadata", "tags")
"""Members of a task that are read here; all others are for the agent."""
_OURS_IN_JSON = tuple(f'"{name}"'.encode() for name in _OURS)
_BLANK = " \t\r\n"
_LONGEST_ID = 65_536
"""Most characters in a `POST /sessions` text."""
_SHOWN = 60
"""Most characters that an error shows of a wrong value."""
_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")


class TasksRejected(SeamlessFlowError):
    """Error: the task file cannot be used; line 0 means the file as a whole."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        self.path = path
        self.line = line
        self.reason = reason
        super().__init__(f"{path}, line {line}: {reason}" if line else f"{path}: {reason}")


class TaskLine(NamedTuple):
    """Line of the file that holds a task."""

    number: int
    """Number of the line, from 1."""
    offset: int
    size: int
    task_id: str


class LineForm(NamedTuple):
    """Form of a file's lines. Its functions raise `ValueError` for a line in another form."""

    id_of: Callable[[bytes], str]
    row_of: Callable[[bytes], TaskRow]
    metadata_of: Callable[[bytes], tuple[str, Mapping[str, Any]]]
    """Returns only id and metadata, from a line that `id_of` has checked."""
    kept: int = _ROWS_KEPT
    """Number of rows kept in memory."""


class TaskFile(Sequence[TaskRow]):
    """A file's tasks, in file order."""

    def __init__(self, path: Path, form: LineForm | None = None, split: str = "") -> None:
        """Read the file once; `split` is the name of its task set. Raises `TasksRejected`."""
        self._path = path
        self._split = split
        self._form = form or LineForm(task_id_of, _row_of, _metadata_of)
        offsets = array("q")
        hashes = array("Q")
        end = 0
        for line in task_lines(path, self._form.id_of):
            offsets.append(line.offset)
            hashes.append(_hash(line.task_id))
            end = line.offset + line.size
        if not offsets:
            raise TasksRejected(path, 0, "there are no tasks in it")
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        self._starts = np.frombuffer(array("q", [*offsets, end]), np.int64)
        unsorted = np.frombuffer(hashes, np.uint64)
        self._order = np.argsort(unsorted, kind="stable").astype(np.uint32)
        self._hashes = unsorted[self._order]
        self._row = lru_cache(maxsize=self._form.kept)(self._read)
        self._refuse_repeated_ids()

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, place: int) -> TaskRow: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[TaskRow]: ...
    def __getitem__(self, place: int | slice) -> TaskRow | Sequence[TaskRow]:
        """Return tasks by their places in the file. Raises `TasksRejected` if it has changed."""
        places = range(len(self))[place]
        return self._row(places) if isinstance(places, int) else [self._row(p) for p in places]

    def labels(self, field: str) -> Iterator[tuple[str, str | None]]:
        """Yield each task's id and metadata field, or None without that field, in one pass.

        Raises `TasksRejected` if the file has changed.
        """
        place = 0
        try:
            with open(os.dup(self._file), "rb") as file:
                file.seek(0)
                for place, line in enumerate(json_lines(file)):
                    if place == len(self) or line.offset != self._starts[place]:
                        raise ValueError("another line begins there")
                    task_id, words = self._form.metadata_of(line.content)
                    yield task_id, str(words[field]) if field in words else None
            if place + 1 < len(self):
                raise ValueError("the file is shorter")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise self._changed(place) from error

    def _changed(self, place: int) -> TasksRejected:
        start = int(self._starts[place])
        reason = f"it changed while it was in use: no task at byte {start}"
        return TasksRejected(self._path, 0, reason)

    def find(self, task_id: str) -> TaskRow | None:
        """Return the task with this id, or None if there is none."""
        place = self._place_of(task_id)
        return None if place is None else self._row(place)

    def _place_of(self, task_id: str) -> int | None:
        wanted = np.uint64(_hash(task_id))
        first, last = (int(np.searchsorted(self._hashes, wanted, side)) for side in _SIDES)
        places = map(int, self._order[first:last])
        return next((place for place in places if self._row(place).task_id == task_id), None)

    def _read(self, place: int) -> TaskRow:
        start, end = map(int, self._starts[place : place + 2])
        line, _, _ = os.pread(self._file, end - start, start).partition(b"\n")
        try:
            return replace(self._form.row_of(line_content(line)), split=self._split)
        except ValueError as error:
            raise self._changed(place) from error

    def _refuse_repeated_ids(self) -> None:
        """Raise `TasksRejected` for the first task whose id an earlier line has."""
        # Equal ids have equal hashes, which are neighbours; different ids seldom have equal hashes.
        equal = np.flatnonzero(self._hashes[1:] == self._hashes[:-1])
        doubtful = {int(self._order[place + more]) for place in equal for more in (0, 1)}
        seen: dict[str, int] = {}
        for place in sorted(doubtful):
            task_id = self._read(place).task_id
            if task_id in seen:
                first, again = (self.line(number) for number in (seen[task_id], place))
                raise TasksRejected(self._path, again, f"line {first} has the id {task_id!r}, too")
            seen[task_id] = place

    def refuse_ids_of(self, other: "TaskFile") -> None:
        """Raise `TasksRejected` for a task whose id another file has."""
        # Only ids with equal hashes are read: equal ids, and seldom others.
        equal = np.isin(self._hashes, other._hashes)
        for place in sorted(map(int, self._order[equal])):
            task_id = self._read(place).task_id
            if (twin := other._place_of(task_id)) is not None:
                where = f"{other._path}, line {other.line(twin)}"
                raise TasksRejected(
                    self._path, self.line(place), f"{where} has the id {task_id!r}, too"
                )

    def line(self, place: int) -> int:
        """Return the line number of a task."""
        before = itertools.islice(task_lines(self._path), place, None)
        return next(before).number


def read(path: Path, split: str = "") -> TaskSource:
    """Return the tasks in a file. Raises `TasksRejected`."""
    return source_of(TaskFile(path, split=split))


def source_of(
    file: TaskFile, seed: int = 0, shuffled: bool = True, name: str = "train"
) -> TaskSource:
    """Return a file's tasks, shuffled by a seed, or in file order."""
    return TaskSource(file, file.find, seed, shuffled, name)


def task_row(task_id: str, task: Mapping[str, Any]) -> TaskRow:
    """Return the row for a task's object. Raises `ValueError` for invalid members."""
    return TaskRow(
        task_id,
        json.dumps(task, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(),
        _metadata(task),
        *_sizes(task),
        _tags(task),
        named_roles(task),
    )


def _metadata(task: Mapping[str, Any]) -> Mapping[str, str]:
    """Return a task's `metadata`, empty if it has none. Raises `ValueError`."""
    words = task.get("metadata")
    if not isinstance(words, dict | None):
        raise ValueError(f"metadata is {_shown(words)}, not an object")
    return {name: str(value) for name, value in (words or {}).items()}


def _tags(task: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a task's `tags`, empty if it has none. Raises `ValueError`."""
    tags = task.get("tags")
    if not isinstance(tags, list | None):
        raise ValueError(f"tags is {_shown(tags)}, not a list of texts")
    for tag in tags or ():
        if not isinstance(tag, str | int) or isinstance(tag, bool) or not str(tag).strip(_BLANK):
            raise ValueError(f"a tag is {_shown(tag)}, not a text")
    return tuple(map(str, tags or ()))


def named_roles(task: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a task's `roles`, or nothing if they are no list of texts: agents may use the word."""
    roles = task.get("roles")
    texts = isinstance(roles, list) and all(isinstance(role, str) for role in roles)
    return tuple(roles or ()) if texts else ()


def _shown(value: object) -> str:
    """Return a value as it stands in its line, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _sizes(task: Mapping[str, Any]) -> tuple[int | None, int | None, int | None]:
    """Return a task's `group_size`, `min_group_size` and `turn_limit`. Raises `ValueError`."""
    size = _count(task, "group_size")
    least = _count(task, "min_group_size")
    if size and least and least > size:
        raise ValueError(f"min_group_size {least} is more than its group_size {size}")
    return size, least, _count(task, "turn_limit")


def _count(task: Mapping[str, Any], name: str) -> int | None:
    """Return a sample or turn count, or None if the task has none. Raises `ValueError`."""
    value = task.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
        raise ValueError(f"{name} is {value!r}, not a whole number, 1 or more")
    return value


def task_lines(path: Path, id_of: Callable[[bytes], str] | None = None) -> Iterator[TaskLine]:
    """Yield the lines that hold a task. Raises `TasksRejected` at the first that holds none.

    `id_of` returns the id in a line and raises `ValueError`; the default reads a user's task.
    """
    id_of = id_of or task_id_of
    number = 0
    content = b""
    try:
        with path.open("rb") as file:
            for line in json_lines(file):
                number = line.number
                content = line.content
                yield TaskLine(number, line.offset, line.size, id_of(line.content))
    except OSError as error:
        raise TasksRejected(path, 0, error.strerror or str(error)) from error
    except ValueError as error:
        raise TasksRejected(path, number, json_fault(content, error)) from error


def task_id_of(line: bytes) -> str:
    """Return the task's id in a line. Raises `ValueError`."""
    task: Any = read_json(line)
    if any(line.count(name) > 1 for name in _OURS_IN_JSON):
        json.loads(line, object_pairs_hook=_once)  # three times as slow, so not for each line
    if not isinstance(task, dict) or "id" not in task:
        raise ValueError('not a JSON object with an "id", a text or a whole number')
    task_id = task["id"]
    if not isinstance(task_id, str | int) or isinstance(task_id, bool):
        raise ValueError(f"id is {_shown(task_id)}, not a text or a whole number")
    if not str(task_id).strip(_BLANK):
        raise ValueError(f"id is {_shown(task_id)}, which names no task")
    if len(str(task_id)) > _LONGEST_ID:
        reason = f"{len(str(task_id)):,} characters, and a session takes {_LONGEST_ID:,}"
        raise ValueError(f"the id has {reason}")
    _sizes(task), _metadata(task), _tags(task)
    return str(task_id)


def _once(members: Sequence[tuple[str, Any]]) -> None:
    """Raise `ValueError` for a repeated name in an object; JSON readers take the last one."""
    names = [name for name, _ in members]
    if twice := [name for name in _OURS if names.count(name) > 1]:
        raise ValueError(f"{twice[0]!r} stands there twice")


def _row_of(line: bytes) -> TaskRow:
    """Return the task in a line. Raises `ValueError`."""
    return task_row(task_id_of(line), json.loads(line))


def _metadata_of(line: bytes) -> tuple[str, Mapping[str, Any]]:
    """Return id and metadata of the task in a checked line. Raises `ValueError`."""
    task: Any = read_json(line)
    return str(task["id"]), task.get("metadata") or {}


def _hash(task_id: str) -> int:
    return xxhash.xxh3_64_intdigest(task_id.encode())
