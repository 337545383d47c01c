"""A recorded optimizer step, as the trainer keeps it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamlessflow.schemas.records import StepCommitted, StepMethod

Sessions = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """A recorded optimizer step."""

    step: int
    version: int
    lineage: str
    groups: Mapping[str, Sessions]
    """Sessions of each group, in the order of the batch."""
    methods: tuple[StepMethod, ...] = ()
    """Empty also if a checkpoint covers its record: they are only compared."""
    reused: tuple[str, ...] = ()
    """Groups among them that earlier steps trained, in this order also."""

    @classmethod
    def of(cls, record: StepCommitted) -> "Commit":
        """Return the step of a record."""
        groups = {group.group_id: group.sessions for group in record.groups}
        reused = tuple(group.group_id for group in record.groups if group.reused)
        return cls(record.step, record.version, record.lineage, groups, record.methods, reused)

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> "Commit":
        """Return the step that `to_json` gave these values for; earlier releases gave four."""
        step, version, lineage, groups, *reused = values
        members = {name: tuple(sessions) for name, sessions in groups.items()}
        return cls(step, version, lineage, members, reused=tuple(*reused))

    def to_json(self) -> list[Any]:
        """Return the step as plain values, without its methods."""
        return [self.step, self.version, self.lineage, dict(self.groups), list(self.reused)]

    def own(self) -> dict[str, Sessions]:
        """Return the groups that no earlier step trained."""
        return {name: sessions for name, sessions in self.groups.items() if name not in self.reused}
