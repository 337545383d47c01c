"""The reuse store: trained groups in memory, which later steps may train again.

A checkpoint keeps these groups' names, and how often each was trained. After a restart their
sessions are read again from `trajectories`. A step's choice depends only on seed, step and the
recorded uses. So a step that is executed again makes the same choice. Does no I/O; called by the
dataloader.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from seamlessflow.trainer.data.batch import Prepared, prepare
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.rules import BatchRules, ReuseRules
from seamlessflow.trainer.data.sessions import FailedSession, SessionSource, ValidSession
from seamlessflow.trainer.data.staleness import StepClock

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UsedSession:
    """A trained group's session, and its record's place on `trajectories`."""

    session_id: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class UsedGroup:
    """A trained group, as a checkpoint keeps it."""

    group_id: str
    step: int
    """Step that trained it first."""
    uses: int
    """Steps that trained it."""
    sessions: tuple[UsedSession, ...]


@dataclass(eq=False)
class ReuseStore:
    """Groups by id; groups from a checkpoint wait for their sessions."""

    _used: dict[str, UsedGroup] = field(default_factory=dict)
    _needed: Mapping[str, int] = field(default_factory=dict)
    """By group, the last recorded step that trains it again and must itself be executed again."""
    _sessions: dict[str, ValidSession] = field(default_factory=dict)
    """Sessions in memory, by session id."""
    _awaited: dict[str, tuple[str, UsedSession]] = field(default_factory=dict)
    """Sessions that must still be read again, by session id, each with its group."""

    @classmethod
    def from_checkpoint(cls, begun: Iterable[UsedGroup], needed: Mapping[str, int]) -> "ReuseStore":
        """Return the store that a checkpoint recorded."""
        used = {group.group_id: group for group in begun}
        awaited = {
            session.session_id: (name, session)
            for name, group in used.items()
            for session in group.sessions
        }
        return cls(used, needed, {}, awaited)

    @property
    def awaits(self) -> bool:
        """Return whether sessions must still be read again."""
        return bool(self._awaited)

    def recorded(self) -> tuple[UsedGroup, ...]:
        """Return the groups that a checkpoint keeps."""
        return tuple(self._used.values())

    def held(self) -> list[SessionSource]:
        """Return the sessions in memory; a restart must read them again."""
        return [session.source for session in self._sessions.values()]

    def add(self, session: ValidSession | FailedSession) -> bool:
        """Take a session that was read again; return whether it belongs to the store."""
        name = session.source.session_id
        self._read_to(session.source)
        if name not in self._awaited:
            return name in self._sessions
        group_id, _ = self._awaited.pop(name)
        if isinstance(session, FailedSession):
            self._lose(group_id, f"session {name} does not count any more: {session.detail}")
        else:
            self._sessions[name] = session
        return True

    def choose(self, step: int, clock: StepClock, rules: BatchRules) -> list[Prepared] | None:
        """Return the groups that `step` trains again, each with tokens to train.

        None while sessions must still be read again: the choice would differ.
        """
        if not rules.reuse.groups:
            return []
        if self._awaited:
            return None
        able = [group for group in self._used.values() if may_be_used(group, step, rules.reuse)]
        chosen: list[Prepared] = []
        for group in in_order(able, step, rules.reuse):
            if len(chosen) == rules.reuse.groups:
                break
            prepared = self._prepared(group, clock, rules)
            if prepared.credited:
                chosen.append(prepared)
        return chosen

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return those groups that the store lacks."""
        return [name for name in names if name not in self._used]

    def again(
        self, names: Iterable[str], clock: StepClock, rules: BatchRules
    ) -> list[Prepared] | None:
        """Return the groups that a recorded step trained again; None while sessions are awaited.

        Raises `MethodFailed`.
        """
        used = [self._used[name] for name in names]
        if any(session.session_id in self._awaited for group in used for session in group.sessions):
            return None
        return [self._prepared(group, clock, rules) for group in used]

    def trained(self, step: int, groups: Iterable[Prepared], rules: BatchRules) -> None:
        """Count a committed step, and forget the groups that no later step may train."""
        for group in groups:
            name = group.group.group_id
            if group.pool:
                continue  # a mixer chose it, and counts it
            if group.reused:
                self._used[name] = replace(self._used[name], uses=group.reused + 1)
            elif group.credited and (rules.reuse.groups or name in self._needed):
                self._keep(step, group.group)
        for used in list(self._used.values()):
            needed = self._needed.get(used.group_id, -1) > step
            if not needed and not may_be_used(used, step + 1, rules.reuse):
                self._forget(used.group_id)

    def _read_to(self, place: SessionSource) -> None:
        """Forget groups with an awaited session before this place: its record is gone."""
        gone = [
            (group_id, session.session_id)
            for group_id, session in self._awaited.values()
            if session.partition == place.partition and session.offset < place.offset
        ]
        for group_id, name in gone:
            self._lose(group_id, f"session {name} is not on the topic any more")

    def _prepared(self, used: UsedGroup, clock: StepClock, rules: BatchRules) -> Prepared:
        sessions = tuple(self._sessions[session.session_id] for session in used.sessions)
        # Its tokens are older by intent, so another staleness limit holds for them.
        reuse_rules = replace(rules, max_staleness=rules.reuse.max_staleness, on_stale="mask")
        return replace(
            prepare(Group(used.group_id, sessions), clock, reuse_rules), reused=used.uses
        )

    def _keep(self, step: int, group: Group) -> None:
        sources = [session.source for session in group.sessions]
        places = tuple(
            UsedSession(source.session_id, source.partition, source.offset) for source in sources
        )
        self._used[group.group_id] = UsedGroup(group.group_id, step, 1, places)
        self._sessions |= {session.source.session_id: session for session in group.sessions}

    def _lose(self, group_id: str, reason: str) -> None:
        if group_id in self._used:
            _log.warning("group %s is not trained again: %s", group_id, reason)
            self._forget(group_id)

    def _forget(self, group_id: str) -> None:
        for session in self._used.pop(group_id).sessions:
            self._sessions.pop(session.session_id, None)
            self._awaited.pop(session.session_id, None)


def may_be_used(group: UsedGroup, step: int, rules: ReuseRules) -> bool:
    """Return whether `step` may train the group: it has uses left, and is young enough.

    Its age is the steps since it was first trained; each token is at least that stale.
    """
    return group.uses < rules.uses and step - group.step <= rules.max_staleness


def in_order(groups: Sequence[UsedGroup], step: int, rules: ReuseRules) -> list[UsedGroup]:
    """Return the groups in the order in which `step` takes them."""
    # Sorted first, since the order in memory differs after a restart.
    return CHOICES[rules.choice](sorted(groups, key=_place), step, rules.seed)


def _place(group: UsedGroup) -> tuple[int, str]:
    return group.step, group.group_id


def _random(groups: Sequence[UsedGroup], step: int, seed: int) -> list[UsedGroup]:
    order = np.random.default_rng([seed, step]).permutation(len(groups))
    return [groups[place] for place in order.tolist()]


def _newest(groups: Sequence[UsedGroup], step: int, seed: int) -> list[UsedGroup]:
    return sorted(groups, key=lambda group: -group.step)


CHOICES: Mapping[str, Callable[[Sequence[UsedGroup], int, int], list[UsedGroup]]] = {
    "random": _random,
    "newest": _newest,
}
