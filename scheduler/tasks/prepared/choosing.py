"""Choice of tasks: from a row to its task, or to none. Pure.

A task without an id gets the hash of its content. Equal rows are then one task. The held-back part
follows only from the id, so that it is the same in each source that has the task.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from seamlessflow.scheduler.tasks.prepared.settings import Scalar, TaskDataSection
from seamlessflow.scheduler.tasks.prepared.source import ColumnValues
from seamlessflow.schemas.json_text import write_json

VERSION = 1
"""Version of the choice: another may give different tasks or ids for the same rows."""
_MOST_NAMED = 40
"""Most columns or values that an error lists."""
_LONGEST = 60
"""Most letters in such a name or value."""
_ID_BYTES = 16
_PART_BYTES = 8


@dataclass(slots=True)
class RowChoice:
    """Choice of a source's tasks. It counts what it saw, so each reading needs a new one."""

    section: TaskDataSection
    for_evaluation: bool = False
    """True: the held-back tasks; False: the others."""
    rows: int = 0
    met: int = 0
    """Number of rows with the values in `where`."""
    seen: dict[str, list[str]] = field(default_factory=dict)
    """First values in the columns that `where` names."""
    _with_ids: bool | None = None

    def columns(self, names: Collection[str]) -> list[str] | None:
        """Return which of these columns to read, or None for all.

        Raises `ValueError` for a column that the source lacks.
        """
        needed = [*self._members(), *self.section.where]
        tops = [_top(path, names) for path in needed]
        return list(dict.fromkeys(tops)) if self.section.map else None

    def task(self, row: ColumnValues) -> Mapping[str, Any] | None:
        """Return a row's task with its id, or None if it is not chosen. Raises `ValueError`."""
        self.rows += 1
        if not self._meets(row):
            return None
        self.met += 1
        members = self._task(row)
        with_id = members.get("id") is not None
        if self._with_ids not in (None, with_id):
            states = ["has no id, and the first task has one", "has an id, and the first has none"]
            raise ValueError(f"it {states[with_id]}")
        self._with_ids = with_id
        if not with_id:
            members["id"] = content_id(members)
        return members if self._is_in_part(str(members["id"])) else None

    def _task(self, row: ColumnValues) -> dict[str, Any]:
        if not self.section.map:
            return dict(row)
        return {
            name: value_at(row, source)
            if isinstance(source, str)
            else {inner: value_at(row, path) for inner, path in source.items()}
            for name, source in self.section.map.items()
        }

    def _meets(self, row: ColumnValues) -> bool:
        """Return whether a row has the values in `where`; a missing column counts as null."""
        meets = True
        for path, wanted in self.section.where.items():
            value = _value_or_none(row, path)
            seen = self.seen.setdefault(path, [])
            if len(seen) < _MOST_NAMED and (shown := shown_value(value)) not in seen:
                seen.append(shown)
            values = wanted if isinstance(wanted, list) else [wanted]
            meets = meets and any(_alike(value, candidate) for candidate in values)
        return meets

    def _is_in_part(self, task_id: str) -> bool:
        share = self.section.held_back
        return not share or (part_of(task_id) < share) == self.for_evaluation

    def _members(self) -> Sequence[str]:
        columns: list[str] = []
        for source in self.section.map.values():
            columns += [source] if isinstance(source, str) else source.values()
        return columns

    @property
    def made_ids(self) -> bool:
        """True if the ids are content hashes."""
        return self._with_ids is False

    def nothing_left(self) -> str:
        """Return why no row was chosen."""
        if not self.rows:
            return "there are no tasks in it"
        if self.met:
            part = "holds none back" if self.for_evaluation else "holds all back"
            return f"held_back {self.section.held_back:g} of {self.met:,} tasks {part}"
        seen = "; ".join(f"{path} has {', '.join(values)}" for path, values in self.seen.items())
        return f"where leaves none of {self.rows:,} rows: {seen}"


def content_id(task: Mapping[str, Any]) -> str:
    """Return the id for a task that has none: a hash of its members."""
    members = {name: value for name, value in task.items() if name != "id"}
    return blake2b(write_json(members, sort_keys=True), digest_size=_ID_BYTES).hexdigest()


def part_of(task_id: str) -> float:
    """Return a number from 0 to 1 by an id's hash, evenly spread."""
    digest = blake2b(task_id.encode(), digest_size=_PART_BYTES, person=b"held_back/1")
    return int.from_bytes(digest.digest()) / 256.0**_PART_BYTES


def value_at(row: ColumnValues, path: str) -> Any:
    """Return the value of a column, or of a member inside it. Raises `ValueError`."""
    if path in row:
        return row[path]
    value: Any = row
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise ValueError(f"there is no column {path!r}, but {_listed(row)}")
        value = value[name]
    return value


def _value_or_none(row: ColumnValues, path: str) -> Any:
    try:
        return value_at(row, path)
    except ValueError:
        return None


def _top(path: str, names: Collection[str]) -> str:
    """Return the column where a path begins. Raises `ValueError` if there is none."""
    for top in (path, path.partition(".")[0]):
        if top in names:
            return top
    raise ValueError(f"there is no column {path!r}, but {_listed(names)}")


def _alike(value: Any, wanted: Scalar) -> bool:
    """Return whether a value is the wanted one; CSV texts count as what they spell."""
    if isinstance(value, str) != isinstance(wanted, str):
        return _spelled(value) == _spelled(wanted)
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)


def _spelled(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def _listed(names: Collection[Any]) -> str:
    shown = [shown_value(name) for name in list(names)[:_MOST_NAMED]]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (", ".join(shown) or "none") + more


def shown_value(value: Any) -> str:
    """Return a value as an error shows it, cut if it is long."""
    text = f"{value[:_LONGEST]!r}" if isinstance(value, str) else f"{value!r}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
