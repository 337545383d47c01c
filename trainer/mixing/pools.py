"""Pools: the stored sessions that a mixer may choose from. Pure.

A pool remembers names, places and returns; the tokens stay on their topic until they are chosen.
The pool `own` has the groups that this run trained. Any other pool has another log's sessions. They
are named `POOL/ID`, since two logs may use the same ids.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seamlessflow.trainer.stored import OWN


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session that may be trained, and its record's place on `trajectories`."""

    session_id: str
    partition: int
    offset: int
    reward: float
    """Its return."""
    uses: int = 0
    """Steps that trained it."""


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """Stored sessions on one task, as a group."""

    pool: str
    group_id: str
    task_id: str
    step: int | None
    """Step that trained it first; None if this run did not."""
    sessions: tuple[StoredSession, ...]

    @property
    def returns(self) -> tuple[float, ...]:
        """Return each session's return."""
        return tuple(session.reward for session in self.sessions)

    def to_json(self) -> list[Any]:
        """Return the group as plain values, without its pool."""
        sessions = [
            [session.session_id, session.partition, session.offset, session.reward]
            for session in self.sessions
        ]
        return [self.group_id, self.task_id, self.step, sessions]

    @classmethod
    def from_json(cls, pool: str, values: Sequence[Any]) -> "StoredGroup":
        """Return a pool's group from the values that `to_json` returned."""
        group_id, task_id, step, sessions = values
        return cls(pool, group_id, task_id, step, tuple(StoredSession(*each) for each in sessions))


@dataclass(frozen=True, slots=True)
class PoolRules:
    """A pool's settings, `trainer.replay.pools`."""

    uses: int = 4
    max_staleness: int | None = None
    keep: int = 10_000


@dataclass(eq=False)
class Pool:
    """A pool, as far as it has been read."""

    name: str
    rules: PoolRules = field(default_factory=PoolRules)
    used: dict[str, int] = field(default_factory=dict)
    """By session, how many steps trained it; only sessions that a step trained."""
    used_groups: dict[str, int] = field(default_factory=dict)
    """By group, how many steps trained it as a whole."""
    groups: dict[str, StoredGroup] = field(default_factory=dict)
    """Groups by id, the oldest first."""
    _of_task: dict[str, dict[str, None]] = field(default_factory=dict)
    """Ids of each task's groups."""
    _group_of: dict[str, str] = field(default_factory=dict)
    """Id of each session's group."""

    def put(self, group: StoredGroup) -> None:
        """Add a group, or further sessions to one; forget the oldest group beyond `rules.keep`."""
        earlier = self.groups.pop(group.group_id, None)
        if earlier is not None:
            names = {session.session_id for session in group.sessions}
            kept = (each for each in earlier.sessions if each.session_id not in names)
            group = replace(group, sessions=(*kept, *group.sessions))
        self.groups[group.group_id] = group
        self._of_task.setdefault(group.task_id, {})[group.group_id] = None
        self._group_of.update((each.session_id, group.group_id) for each in group.sessions)
        if len(self.groups) > self.rules.keep:
            self._forget(next(iter(self.groups)))

    def lose(self, session_id: str) -> None:
        """Forget a session whose record is gone, or does not count."""
        group = self.group_of(session_id)
        if group is None:
            return
        left = tuple(each for each in group.sessions if each.session_id != session_id)
        if left:
            self.groups[group.group_id] = replace(group, sessions=left)
            del self._group_of[session_id]
        else:
            self._forget(group.group_id)

    def group_of(self, session_id: str) -> StoredGroup | None:
        """Return a session's group; None if the pool lacks the session."""
        name = self._group_of.get(session_id)
        return None if name is None else self.groups[name]

    def count(self, session_id: str) -> None:
        """Count a step that trained a session."""
        self.used[session_id] = self.used.get(session_id, 0) + 1

    def count_group(self, group_id: str) -> None:
        """Count a step that trained a group as a whole."""
        self.used_groups[group_id] = self.used_groups.get(group_id, 0) + 1

    def grow_old(self, step: int) -> None:
        """Forget the groups that are too old for `step` and all later ones."""
        while self.groups and not self._young(next(iter(self.groups.values())), step):
            self._forget(next(iter(self.groups)))

    def at(self, step: int) -> "PoolView":
        """Return the pool as a mixer sees it at `step`."""
        return PoolView(self, step)

    def usable(self, group: StoredGroup, step: int) -> StoredGroup | None:
        """Return a group with the sessions that `step` may train and their uses; None if none."""
        if not self._young(group, step):
            return None
        sessions = tuple(
            replace(session, uses=uses)
            for session in group.sessions
            if (uses := self.used.get(session.session_id, 0)) < self.rules.uses
        )
        return replace(group, sessions=sessions) if sessions else None

    def of_task(self, task_id: str) -> list[StoredGroup]:
        """Return all groups on a task, the oldest first."""
        return [self.groups[name] for name in self._of_task.get(task_id, ())]

    def _young(self, group: StoredGroup, step: int) -> bool:
        limit = self.rules.max_staleness
        return limit is None or group.step is None or step - group.step <= limit

    def _forget(self, group_id: str) -> None:
        group = self.groups.pop(group_id)
        self.used_groups.pop(group_id, None)
        of_task = self._of_task[group.task_id]
        del of_task[group_id]
        if not of_task:
            del self._of_task[group.task_id]
        for session in group.sessions:
            self.used.pop(session.session_id, None)
            del self._group_of[session.session_id]


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool as a mixer sees it at a step: groups with sessions that the step may train."""

    _pool: Pool
    _step: int

    @property
    def name(self) -> str:
        """Return the pool's name."""
        return self._pool.name

    def groups(self) -> list[StoredGroup]:
        """Return all groups, the oldest first; this takes longer the larger the pool is."""
        return self._able(self._pool.groups.values())

    def of_task(self, task_id: str) -> list[StoredGroup]:
        """Return a task's groups, the oldest first."""
        return self._able(self._pool.of_task(task_id))

    def group(self, group_id: str) -> StoredGroup | None:
        """Return the group with this id; None if the step may train none of its sessions."""
        group = self._pool.groups.get(group_id)
        return None if group is None else self._pool.usable(group, self._step)

    def session(self, session_id: str) -> StoredSession | None:
        """Return the session with this id; None if the step may not train it."""
        group = self._pool.group_of(session_id)
        able = None if group is None else self._pool.usable(group, self._step)
        sessions = () if able is None else able.sessions
        return next((each for each in sessions if each.session_id == session_id), None)

    def _able(self, groups: Iterable[StoredGroup]) -> list[StoredGroup]:
        usable = (self._pool.usable(group, self._step) for group in groups)
        return [group for group in usable if group is not None]


def pools_json(pools: Mapping[str, Pool]) -> dict[str, Any]:
    """Return what a checkpoint keeps: the groups of `own`, and every pool's use counts.

    Other pools' groups are read again from their topics.
    """
    return {
        name: {
            "groups": [group.to_json() for group in pool.groups.values()] if name == OWN else [],
            "used": pool.used,
            "used_groups": pool.used_groups,
        }
        for name, pool in pools.items()
    }


def restore(pools: Mapping[str, Pool], values: Mapping[str, Any]) -> None:
    """Fill the pools with what a checkpoint keeps."""
    for name, pool in pools.items():
        if (kept := values.get(name)) is not None:
            for group in kept["groups"]:
                pool.put(StoredGroup.from_json(name, group))
            pool.used.update(kept["used"])
            pool.used_groups.update(kept["used_groups"])
