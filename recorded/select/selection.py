"""Selection of recorded sessions: by id, group, task, offset, time or policy version. Pure.

A selection can also report in words what it asks for and no session met.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import orjson

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.records import SessionOpened, Trajectory

Range = tuple[int, int]
_MOST_NAMED = 20
"""Most names in a sentence."""
_MOST_SHOWN = 300
"""Most characters that a sentence shows of a selection."""


@dataclass(frozen=True, slots=True)
class SessionSelection:
    """Criteria, all of which a session must meet; any session meets one that is empty or None."""

    sessions: frozenset[str] = frozenset()
    """Ids, or names: a name stands for all its sessions."""
    groups: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    offsets: Mapping[int, Range] = field(default_factory=dict)
    """Offsets on `sessions` by partition, the second excluded; other partitions are left out. A
    session is chosen if one of them stands between its first and last event."""
    since_ms: int | None = None
    until_ms: int | None = None
    """Milliseconds since the epoch. A session is chosen if it was open at some time between."""
    versions: Range | None = None
    """Policy versions, both included. A session is chosen if one of them sampled a token in it."""

    def encode(self) -> str:
        """Return the given criteria as JSON, `{}` if there are none."""
        content = {
            name: sorted(value) if isinstance(value, frozenset) else value
            for name, value in asdict(self).items()
            if value not in (None, {}, frozenset())
        }
        options = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
        return orjson.dumps(content, option=options).decode()

    def partitions(self, count: int) -> list[int]:
        """Return the partitions, out of so many, on which chosen sessions can be.

        Raises `SettingsRejected` for offsets on a missing partition.
        """
        numbers = set(range(count))
        if unknown := sorted(self.offsets.keys() - numbers):
            reason = f"there is no partition {unknown[0]} of sessions, only 0 to {count - 1}"
            raise SettingsRejected("--offsets", reason)
        if self.sessions:
            numbers &= {partition_of(session_name(session), count) for session in self.sessions}
        if self.offsets:
            numbers &= self.offsets.keys()
        return sorted(numbers)

    def names_of(self, opened: SessionOpened) -> Iterator[str]:
        """Yield the selection's names that a session has, for example `group g`."""
        ids = {opened.session_id, session_name(opened.session_id)}
        yield from (f"session {name}" for name in self.sessions & ids)
        yield from (
            f"group {name}" for name in self.groups & {opened.group_id or opened.session_id}
        )
        yield from (f"task {name}" for name in self.tasks & {opened.task_id})

    def missing(self, matched: Collection[str]) -> list[str]:
        """Return the selection's names that are not among those `matched`."""
        asked = {"session": self.sessions, "group": self.groups, "task": self.tasks}
        names = (f"{kind} {name}" for kind, members in asked.items() for name in sorted(members))
        return [name for name in names if name not in matched]

    def may_choose(self, opened: SessionOpened, partition: int, offset: int) -> bool:
        """Return False if a session that opened at `offset` cannot be chosen, however it ends."""
        wanted = self._named(opened.session_id, opened.group_id, opened.task_id)
        if self.until_ms is not None and opened.at_ms > self.until_ms:
            return False
        return wanted and (not self.offsets or offset < self.offsets.get(partition, (0, 0))[1])

    def chooses(self, made: Trajectory) -> bool:
        """Return True if the finalized session is chosen."""
        if not self._named(made.session_id, made.group_id, made.task_id):
            return False
        begin, end = self.offsets.get(made.partition, (0, 0))
        if self.offsets and not (made.first_offset < end and made.last_offset >= begin):
            return False
        if self.since_ms is not None and made.finalized_at_ms < self.since_ms:
            return False
        if self.until_ms is not None and made.opened_at_ms > self.until_ms:
            return False
        return self.versions is None or any(
            low <= self.versions[1] and high >= self.versions[0] for low, high in _sampled(made)
        )

    def _named(self, session_id: str, group_id: str, task_id: str) -> bool:
        ids = (session_id, session_name(session_id))
        return (
            (not self.sessions or not self.sessions.isdisjoint(ids))
            and (not self.groups or (group_id or session_id) in self.groups)
            and (not self.tasks or task_id in self.tasks)
        )


def unmatched_lines(
    selection: SessionSelection, missing: Sequence[str], sessions: int
) -> Iterator[str]:
    """Yield sentences about `missing` names, or about a selection that chose no session."""
    if missing:
        more = f" and {len(missing) - _MOST_NAMED:,} more" if len(missing) > _MOST_NAMED else ""
        named = ", ".join(missing[:_MOST_NAMED])
        yield f"! not found among the sessions that were read: {named}{more}"
    elif not sessions and selection != SessionSelection():
        chosen = selection.encode()
        shown = chosen if len(chosen) <= _MOST_SHOWN else f"{chosen[:_MOST_SHOWN]}..."
        yield f"! no session that ended matches the selection {shown}"


def _sampled(made: Trajectory) -> Iterator[Range]:
    return ((span.version_min, span.version_max) for span in made.spans)
