"""Statistics by arm: results of groups, for each task and for each pool of tasks.

A fold over `control`, updated in place: with as many arms as tasks, a copy for each record would
cost too much. Evaluation groups do not count. A group for several policies counts once, with its
first result. An exploration counts, but the group that samples some of it again does not. Called by
`scheduler/journal.py`; samplers read it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import xxhash

from seamlessflow.scheduler.state.ledger import (
    OPPONENT_ARM,
    SMALLEST_DIFFERENCE,
    arms_of,
    returns_differ,
)
from seamlessflow.scheduler.state.state import State, is_new_group
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record

POOL_MEMORY = 0.97
"""Factor on a pool's counts at each further result (ours, by simulation).

The rate then covers about thirty groups. With a task's factor it would cover five, and without a
factor it would show the distant past.
"""
GAME_MEMORY = 0.99
"""Factor on game counts against an opponent at each further game; like 0.5 below, FightLadder's."""
_UNKNOWN_WIN_RATE = 0.5


class PassCounts(NamedTuple):
    """Discounted session counts."""

    passed: float
    failed: float

    @property
    def rate(self) -> float:
        """Share that passed, as if one more had passed and one more had failed."""
        return (self.passed + 1) / (self.passed + self.failed + 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCounting:
    """Counting rules, as `pacing.sampler` sets them."""

    memory: float = 0.99
    """Factor on all counts at each trained step."""
    own_memory: float = 0.8
    """Factor on a task's counts at each further result."""
    passes: float = 1.0
    """Least return with which a session has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Statistics for one arm."""

    passed: float = 0.0
    failed: float = 0.0
    at_step: int = 0
    """Trained step up to which both counts are discounted."""
    draws: int = 0
    ready: int = 0
    won: int = 0
    """Ready groups whose sessions all passed."""
    lost: int = 0
    """Ready groups whose sessions all failed."""
    equal: int = 0
    """Number of newest ready groups in a row whose returns were equal."""
    last_passed: int = 0
    last_counted: int = 0
    """Sessions in its newest ready group; 0: none got ready."""
    longest: int = 0
    """Turns in its longest session that passed; 0: none passed."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures from its newest choice."""

    def counts(self, step: int, memory: float) -> PassCounts:
        """Return both counts as of a trained step."""
        kept = memory ** max(0, step - self.at_step)
        return PassCounts(self.passed * kept, self.failed * kept)


class GroupResult(NamedTuple):
    """A group's result: its sessions that passed."""

    passed: int
    counted: int
    equal: bool
    longest: int
    """Turns in its longest session that passed; 0: none did, or turns were not recorded."""


NO_ARM = Arm()
_STATISTICS = tuple(field.name for field in fields(Arm))


@dataclass(eq=False)
class Arms:
    """All arms that were drawn."""

    counting: PassCounting = field(default_factory=PassCounting)
    by_name: dict[str, Arm] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    """Arms that changed since the last `note_written`."""
    _names: dict[int, str] = field(default_factory=dict)
    """Arm names by their keys."""
    _epochs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Epochs that each arm's records have on its topic."""
    _covered: dict[str, int] = field(default_factory=dict)
    """Newest `control` offset that the arms read from their own topic cover."""

    def arm(self, name: str) -> Arm:
        """Return an arm's statistics; empty ones for an arm that was never drawn."""
        return self.by_name.get(name, NO_ARM)

    def by_key(self, key: int) -> Arm:
        """Return the statistics for the arm with this key (`arm_hash`)."""
        name = self._names.get(key)
        return NO_ARM if name is None else self.by_name[name]

    def win_rate(self, name: str) -> float:
        """Return the share of games against an opponent that were won, or 0.5 before the first."""
        arm = self.arm(name)
        games = arm.passed + arm.failed
        return arm.passed / games if games else _UNKNOWN_WIN_RATE

    def put(self, name: str, arm: Arm, offset: int = 0) -> None:
        """Set an arm's new statistics, unless its own topic already covers this offset."""
        if offset > self._covered.get(name, -1):
            self._keep(name, arm)
            self.changed.add(name)

    def apply(self, before: State, record: Record, offset: int = 0) -> None:
        """Fold in a `control` record, with the state before it and the record's offset."""
        if isinstance(record, r.GroupAdmitted):
            if is_new_group(before, record):
                self._drawn(record, offset)
        elif isinstance(record, r.GroupReady):
            arms = before.uncounted.get(record.group_id, ())
            result = result_of(record, self.counting.passes) if arms else None
            if result is not None:
                self._counted(arms, result, before.first.steps.trained, offset)

    def restore(self, snapshot: r.ArmSnapshot, end: int) -> None:
        """Restore an arm from its topic; `end` is the end of `control`. The newest one counts."""
        name = snapshot.arm
        offset = snapshot.control_offset
        self._epochs[name] = (*self._epochs.get(name, ()), snapshot.epoch)
        if offset < end and offset >= self._covered.get(name, -1):
            self._covered[name] = offset
            self._keep(name, _of_snapshot(snapshot))

    def snapshots(self, epoch: int, offset: int) -> Iterator[r.ArmSnapshot]:
        """Yield the arms that changed, as of this `control` offset."""
        for name in sorted(self.changed):
            yield _to_snapshot(name, self.by_name[name], epoch, offset)

    def replaced(self, epoch: int) -> Iterator[tuple[int, str]]:
        """Yield epoch and name for the changed arms' older records."""
        for name in sorted(self.changed):
            for older in sorted({*self._epochs.get(name, ())} - {epoch}):
                yield older, name

    def note_written(self, epoch: int) -> None:
        """Note that all changed arms were written, and their older records removed."""
        self._epochs |= dict.fromkeys(self.changed, (epoch,))
        self.changed.clear()

    def _drawn(self, record: r.GroupAdmitted, offset: int) -> None:
        for name in arms_of(record):
            arm = self.arm(name)
            # A choice without a sampler does not change the place in a pass, so that stays.
            figures = {**arm.figures, **record.sampler_figures}
            drawn = replace(arm, draws=arm.draws + 1, figures=figures)
            self.put(name, drawn, offset)

    def _counted(self, arms: tuple[str, ...], result: GroupResult, step: int, offset: int) -> None:
        for place, name in enumerate(arms):  # the task's arm is the first
            kept = POOL_MEMORY if place else self.counting.own_memory
            memory = self.counting.memory
            if name.startswith(OPPONENT_ARM):
                kept = GAME_MEMORY**result.counted
                memory = 1.0  # steps do not count there
            arm = self.arm(name)
            counts = arm.counts(step, memory)
            before = PassCounts(counts.passed * kept, counts.failed * kept)
            self.put(name, _after(arm, before, result, step), offset)

    def _keep(self, name: str, arm: Arm) -> None:
        if name not in self.by_name:
            self._names[arm_hash(name)] = name
        self.by_name[name] = arm


def arm_hash(name: str) -> int:
    """Return an arm's key, a hash of its name."""
    return xxhash.xxh3_64_intdigest(name.encode())


def result_of(record: r.GroupReady, passes: float) -> GroupResult | None:
    """Return a group's result; None for a record from before 0.1.0 without its passes."""
    returns = record.returns
    if not returns:
        counted = len(record.sessions)
        if record.passed is None or not counted:
            return None
        equal = counted > 1 and record.reward_std <= SMALLEST_DIFFERENCE
        return GroupResult(record.passed, counted, equal, 0)
    passed = [value >= passes for value in returns]
    turns = record.turns or (0,) * len(returns)
    longest = max((turn for turn, is_pass in zip(turns, passed, strict=True) if is_pass), default=0)
    equal = len(returns) > 1 and not returns_differ(record)
    return GroupResult(sum(passed), len(returns), equal, longest)


def _after(arm: Arm, counts: PassCounts, result: GroupResult, step: int) -> Arm:
    """Return an arm after a result; `counts` are its own, discounted to this trained step."""
    failed = result.counted - result.passed
    return replace(
        arm,
        passed=counts.passed + result.passed,
        failed=counts.failed + failed,
        at_step=step,
        ready=arm.ready + 1,
        won=arm.won + (failed == 0),
        lost=arm.lost + (result.passed == 0),
        equal=arm.equal + 1 if result.equal else 0,
        last_passed=result.passed,
        last_counted=result.counted,
        longest=max(arm.longest, result.longest),
    )


def _to_snapshot(name: str, arm: Arm, epoch: int, offset: int) -> r.ArmSnapshot:
    return r.ArmSnapshot(epoch=epoch, arm=name, control_offset=offset, **_statistics(arm))


def _of_snapshot(snapshot: r.ArmSnapshot) -> Arm:
    return Arm(**_statistics(snapshot))


def _statistics(holder: Arm | r.ArmSnapshot) -> dict[str, Any]:
    """Return an arm's statistics by name; its record has the same names."""
    return {name: getattr(holder, name) for name in _STATISTICS}
