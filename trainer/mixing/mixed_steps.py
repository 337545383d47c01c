"""Each step's plan: a mixer chooses from the pools, and the chosen sessions join the batch.

A step that is executed again takes its recorded plan, and calls no mixer. Does no I/O: `Stored`
reads the chosen sessions. Called by the dataloader.
"""

import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from seamlessflow.infra.errors import ENDS_PROCESS, SeamlessFlowError
from seamlessflow.infra.user_functions import OwnSettings, chosen, is_user_function, place_of
from seamlessflow.schemas.tokens import step_name
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.sessions import ValidSession
from seamlessflow.trainer.mixing.mixers import (
    MIXERS,
    FreshGroup,
    FreshSession,
    Plan,
    Replacement,
    checked_plan,
)
from seamlessflow.trainer.mixing.pools import (
    Pool,
    PoolRules,
    StoredGroup,
    StoredSession,
    pools_json,
    restore,
)
from seamlessflow.trainer.recovery.control_state import Commit
from seamlessflow.trainer.settings import TrainerSection
from seamlessflow.trainer.stored import OWN

MOST_FAILURES = 100
"""The run ends after this many steps in a row whose plan failed."""
_log = logging.getLogger(__name__)


class MixerFailed(SeamlessFlowError):
    """A user's own mixer that failed for many steps in a row."""

    lasting = True

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(
            f"trainer.replay: {name} failed for {MOST_FAILURES} steps in a row: {reason}"
        )


class Stored(Protocol):
    """A reader for stored sessions."""

    def update(self) -> None:
        """Add the sessions that were stored since the last call."""

    def sessions(self, wanted: Sequence[tuple[str, StoredSession]]) -> dict[str, ValidSession]:
        """Return these sessions by id; `wanted` pairs each with its pool's name.

        Sessions that are gone are left out.
        """


@dataclass(frozen=True, slots=True)
class MixerRules:
    """A mixer's settings, `trainer.replay`."""

    name: str = ""
    """Empty: there is no mixer."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Settings for a built-in mixer."""
    functions: OwnSettings = field(default_factory=dict)
    """Settings for a user's own mixer."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Mixed:
    """A step's groups with their stored sessions."""

    groups: Sequence[Group]
    """The new groups; stored sessions may take the places of some new ones."""
    added: Sequence[Group] = ()
    """The stored groups."""


@dataclass(eq=False)
class Mixing:
    """A policy's pools, and the mixer that chooses from them."""

    rules: MixerRules = field(default_factory=MixerRules)
    pools: Mapping[str, Pool] = field(default_factory=dict)
    stored: Stored | None = None
    """Reader for the pools; None: there are no pools."""
    failures: int = 0
    """Steps in a row whose plan failed."""
    _failed_step: int = -1

    def restore(self, values: Mapping[str, Any]) -> None:
        """Fill the pools with what a checkpoint keeps."""
        restore(self.pools, values)

    def recorded(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return pools_json(self.pools)

    def planned(self, step: int, ready: Iterable[Group]) -> Mixed:
        """Return a new step's groups by the mixer's plan. Raises `MixerFailed`.

        If a stored session's record is gone, the session is forgotten, and the plan made anew.
        """
        groups = list(ready)
        if not self.rules.name or not groups or self.stored is None:
            return Mixed(groups)
        self.stored.update()
        while True:
            plan = self._plan(step, groups)
            mixed, gone = self._read(plan, groups)
            if not gone:
                return mixed
            for pool, name in gone:
                _log.warning("pool %s: session %s is gone, or does not count", pool, name)
                self.pools[pool].lose(name)

    def again(self, commit: Commit, groups: Sequence[Group]) -> tuple[Mixed, list[str]]:
        """Return a recorded step's groups by its plan, and names of gone groups and sessions."""
        added: list[StoredGroup] = []
        replaced: list[Replacement] = []
        gone: list[str] = []
        for group_id, pool in commit.pools.items():
            group = self._stored_group(pool, group_id, commit.groups[group_id])
            if group is None:
                gone.append(group_id)
            else:
                added.append(group)
        for group_id, session_id, pool, by in commit.replaced:
            stored = self._stored_session(pool, by)
            if stored is None:
                gone.append(by)
            else:
                replaced.append(Replacement(group_id, session_id, pool, stored))
        if gone or not (added or replaced):
            return Mixed(groups), gone
        mixed, lost = self._read(Plan(added, replaced), groups)
        return mixed, [name for _, name in lost]

    def trained(self, step: int, batch: Batch) -> None:
        """Count a committed step, and store its new groups."""
        for prepared in batch.groups:
            group = prepared.group
            if prepared.reused and not group.pool:
                continue  # recorded while the run had `trainer.reuse` set
            if (pool := self.pools.get(group.pool or OWN)) is not None:
                if not group.pool:
                    pool.put(_stored(group, step))
                pool.count_group(group.group_id)
            trained = {chain.session_id for chain in prepared.chains}
            for session in group.members:
                name = session.source.session_id
                pool = self.pools.get(session.pool or OWN)
                if pool is not None and name in trained:
                    pool.count(name)
        if (past := self.pools.get(OWN)) is not None:
            past.grow_old(step + 1)

    def _plan(self, step: int, groups: Sequence[Group]) -> Plan:
        """Return the mixer's plan, an empty one if it failed. Raises `MixerFailed`."""
        fresh = [_fresh(group) for group in groups]
        pools = {name: pool.at(step) for name, pool in self.pools.items()}
        source = random.Random(f"{self.rules.seed} {step}")  # nosec B311 # repeatable draws
        mixer = partial(
            chosen(MIXERS, self.rules.name, self.rules.functions), **self.rules.arguments
        )
        try:
            plan = checked_plan(mixer(step, fresh, pools, source), fresh, pools)
        except ENDS_PROCESS:
            raise
        except Exception as error:  # a user's function may raise anything
            if not is_user_function(self.rules.name):
                raise
            self._fail(step, error)
            return Plan()
        self.failures = 0
        return plan

    def _fail(self, step: int, error: Exception) -> None:
        reason = f"{place_of(error)}{type(error).__name__}: {error}"
        # A batch may be planned several times until its step begins.
        if step != self._failed_step:
            self.failures += 1
            text = "trainer.replay: %s failed, so %s has no stored session (%d in a row): %s"
            _log.warning(text, self.rules.name, step_name(step), self.failures, reason)
        self._failed_step = step
        if self.failures >= MOST_FAILURES:
            raise MixerFailed(self.rules.name, reason) from error

    def _read(self, plan: Plan, groups: Sequence[Group]) -> tuple[Mixed, list[tuple[str, str]]]:
        """Return the groups with a plan's sessions, and pool and name of each session that is gone.

        If any is gone, the groups are returned as they were.
        """
        wanted = [
            *((group.pool, session) for group in plan.add for session in group.sessions),
            *((each.pool, each.by) for each in plan.replace),
        ]
        read = self.stored.sessions(wanted) if wanted and self.stored else {}
        gone = [(pool, each.session_id) for pool, each in wanted if each.session_id not in read]
        if gone:
            return Mixed(groups), gone
        stored: dict[str, list[ValidSession]] = {}
        for each in plan.replace:
            session = replace(read[each.by.session_id], replaces=each.session_id, uses=each.by.uses)
            stored.setdefault(each.group_id, []).append(session)
        mixed = [
            replace(group, stored=tuple(stored[group.group_id]))
            if group.group_id in stored
            else group
            for group in groups
        ]
        added = [
            Group(
                group.group_id,
                tuple(replace(read[each.session_id], uses=each.uses) for each in group.sessions),
                pool=group.pool,
                uses=self.pools[group.pool].used_groups.get(group.group_id, 0),
            )
            for group in plan.add
        ]
        return Mixed(mixed, added), []

    def _stored_group(
        self, pool: str, group_id: str, sessions: Sequence[str]
    ) -> StoredGroup | None:
        """Return a stored group with these sessions; None if one of them is gone."""
        stored = [self._stored_session(pool, name) for name in sessions]
        kept = tuple(session for session in stored if session is not None)
        if pool not in self.pools or len(kept) < len(stored) or not kept:
            return None
        group = self.pools[pool].groups[group_id]
        return replace(group, sessions=kept)

    def _stored_session(self, pool: str, name: str) -> StoredSession | None:
        """Return a session, however often it was used: a recorded step chose it."""
        group = self.pools[pool].group_of(name) if pool in self.pools else None
        if group is None:
            return None
        session = next(each for each in group.sessions if each.session_id == name)
        return replace(session, uses=self.pools[pool].used.get(name, 0))


def mixing_of(trainer: TrainerSection) -> Mixing:
    """Return the mixer that these settings name; its pools are still empty and have no reader."""
    replay = trainer.replay
    pools = {
        name: Pool(name, PoolRules(pool.uses, pool.max_staleness, pool.keep))
        for name, pool in (replay.pools.items() if replay.name else ())
    }
    rules = MixerRules(replay.name or "", replay.arguments, trainer.functions, trainer.seed)
    return Mixing(rules, pools)


def task_of(group: Group) -> str:
    """Return a group's task; empty if no session names one."""
    return next(filter(None, (session.source.task_id for session in group.sessions)), "")


def _stored(group: Group, step: int) -> StoredGroup:
    """Return a new group as the run's own pool stores it after `step` trained it."""
    sources = ((session.source, session.reward) for session in group.sessions)
    sessions = tuple(
        StoredSession(source.session_id, source.partition, source.offset, reward)
        for source, reward in sources
    )
    return StoredGroup(OWN, group.group_id, task_of(group), step, sessions)


def _fresh(group: Group) -> FreshGroup:
    sessions = tuple(
        FreshSession(session.source.session_id, session.reward, session.version_min)
        for session in group.sessions
    )
    return FreshGroup(group.group_id, task_of(group), sessions)
