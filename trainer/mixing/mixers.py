"""Mixers: which stored sessions a step trains beside its new ones.

Registered by name (`MIXERS`, the setting `trainer.replay.name`). A mixer's choice is on the log,
so a step that is executed again calls no mixer. Random numbers are seeded by run and step.
`try_mixer` tries a user's own mixer on a small input, before a run. Pure.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamlessflow.infra.user_functions import ResultMalformed
from seamlessflow.trainer.mixing.pools import Pool, PoolView, StoredGroup, StoredSession
from seamlessflow.trainer.stored import OWN

Pools = Mapping[str, PoolView]


@dataclass(frozen=True, slots=True)
class FreshSession:
    """A session in a new group."""

    session_id: str
    reward: float
    """Its return."""
    version: int | None
    """Oldest policy version among its trained tokens, or None without any."""


@dataclass(frozen=True, slots=True)
class FreshGroup:
    """A group that waits for its step."""

    group_id: str
    task_id: str
    sessions: tuple[FreshSession, ...]

    @property
    def returns(self) -> tuple[float, ...]:
        """Return each session's return."""
        return tuple(session.reward for session in self.sessions)


@dataclass(frozen=True, slots=True)
class Replacement:
    """A new group's session that leaves the loss, and the stored session that takes its place."""

    group_id: str
    session_id: str
    pool: str
    by: StoredSession


@dataclass(frozen=True, slots=True)
class Plan:
    """A step's stored sessions."""

    add: Sequence[StoredGroup] = ()
    """Groups that are trained beside the new ones."""
    replace: Sequence[Replacement] = ()


Mixer = Callable[..., Plan]
"""Called with the step, the groups that wait for it, the pools by name and a random generator."""


def rescue(
    _: int,
    fresh: Sequence[FreshGroup],
    pools: Pools,
    source: random.Random,
    *,
    take: str = "newest",
    passes: float = 1.0,
) -> Plan:
    """Replace a failure by a stored success on the same task, in each group without a success.

    DART, arXiv 2509.23866. The failure with the oldest policy version leaves; among equal versions
    the first sample. If there is no stored success, the group stays as it is.
    """
    replaced = []
    spent: set[str] = set()
    for group in fresh:
        if not group.sessions or max(group.returns) >= passes:
            continue
        stored = [
            (pool.name, item, session)
            for pool in pools.values()
            for item in pool.of_task(group.task_id)
            for session in item.sessions
            if session.reward >= passes and session.session_id not in spent
        ]
        if not stored:
            continue
        if take == "newest":
            name, _item, by = max(stored, key=lambda choice: _recency(*choice[1:]))
        else:
            name, _item, by = source.choice(stored)
        spent.add(by.session_id)
        oldest = min(group.sessions, key=lambda each: -1 if each.version is None else each.version)
        replaced.append(Replacement(group.group_id, oldest.session_id, name, by))
    return Plan(replace=replaced)


def mix(
    _: int, fresh: Sequence[FreshGroup], pools: Pools, source: random.Random, *, foreign: int = 4
) -> Plan:
    """Add stored groups, drawn uniformly from those whose returns differ.

    SAPO, arXiv 2509.08721: 4 from others beside 4 own ones were its best mix.
    """
    stored = [
        group for pool in pools.values() for group in pool.groups() if len(set(group.returns)) > 1
    ]
    taken = {group.group_id for group in fresh}
    able = [group for group in stored if group.group_id not in taken]
    return Plan(add=source.sample(able, min(foreign, len(able))))


MIXERS: Mapping[str, Mixer] = {"rescue": rescue, "mix": mix}


def checked_plan(plan: object, fresh: Sequence[FreshGroup], pools: Pools) -> Plan:
    """Return a plan after a check. Raises `ResultMalformed`.

    All that it names must exist and be usable. It may name a group or a stored session only once.
    """
    if not isinstance(plan, Plan):
        raise ResultMalformed(f"{plan!r:.80}", "a Plan")
    _once([group.group_id for group in plan.add], "group to add")
    _once([each.session_id for each in plan.replace], "session to replace")
    members = {group.group_id: {each.session_id for each in group.sessions} for group in fresh}
    for group in plan.add:
        _usable(group.pool, group.group_id, [each.session_id for each in group.sessions], pools)
        if group.group_id in members:
            raise ResultMalformed(f"{group.group_id} to add, which is new", "a stored group")
    for each in plan.replace:
        if each.session_id not in members.get(each.group_id, ()):
            raise ResultMalformed(
                f"session {each.session_id} of {each.group_id} to replace", "a session of a group"
            )
        _stored(each, pools)
    trained = [each.session_id for group in plan.add for each in group.sessions]
    _once([*trained, *(each.by.session_id for each in plan.replace)], "stored session")
    return plan


def _recency(group: StoredGroup, session: StoredSession) -> tuple[bool, int, int]:
    """Return a sort key for stored sessions: those from the run's newest step come last."""
    return group.step is not None, group.step or 0, session.offset


def _usable(pool: str, group_id: str, sessions: Sequence[str], pools: Pools) -> None:
    group = pools[pool].group(group_id) if pool in pools else None
    if group is None:
        raise ResultMalformed(f"group {group_id} of pool {pool}", "a group that may be trained")
    able = {each.session_id for each in group.sessions}
    if not sessions or not able.issuperset(sessions):
        raise ResultMalformed(f"other sessions of group {group_id}", "those that may be trained")


def _stored(each: Replacement, pools: Pools) -> None:
    if each.pool not in pools or pools[each.pool].session(each.by.session_id) is None:
        raise ResultMalformed(
            f"session {each.by.session_id} of pool {each.pool}", "one that may be trained"
        )


def _once(names: Sequence[str], what: str) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ResultMalformed(f"the {what} {twice} twice", "each once")


_STEP = 4
_FRESH = {"a": (0.0, 0.0, 0.0), "b": (1.0, 0.0, 0.0), "c": (0.0, 0.0, 0.0)}
"""The new groups' returns, by task."""
_STORED = {"a": (1.0, 0.0), "b": (1.0, 1.0), "d": (0.5, 0.0)}
"""Returns of a pool's stored groups, by task."""


def small_step() -> tuple[list[FreshGroup], dict[str, PoolView]]:
    """Return three new groups, two without a success, and two pools with three groups each."""
    fresh = [
        FreshGroup(
            f"group-{task}",
            task,
            tuple(
                FreshSession(f"group-{task}.{number}", value, number)
                for number, value in enumerate(returns)
            ),
        )
        for task, returns in _FRESH.items()
    ]
    pools = {name: _pool(name).at(_STEP) for name in (OWN, "experts")}
    return fresh, pools


def try_mixer(function: Callable[..., Any]) -> Plan:
    """Call a function for the seam `trainer.replay.name`."""
    fresh, pools = small_step()
    source = random.Random(0)  # nosec B311 # repeatable draws
    return checked_plan(function(_STEP, fresh, pools, source), fresh, pools)


def _pool(name: str) -> Pool:
    pool = Pool(name)
    for number, (task, returns) in enumerate(_STORED.items()):
        sessions = tuple(
            StoredSession(f"{name}/{task}.{sample}", 0, len(returns) * number + sample, value)
            for sample, value in enumerate(returns)
        )
        step = number if name == OWN else None
        pool.put(StoredGroup(name, f"{name}/{task}", task, step, sessions))
    return pool
