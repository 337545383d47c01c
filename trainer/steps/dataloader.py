"""The dataloader: it turns finalized sessions into the next batch. Does no I/O but logging.

The loop gives it the records on `trajectories` (`add`) and on `control` (`apply`). Records that it
returns are for `control`. `next_batch` returns a recorded step as it was recorded, and a new step
as soon as enough groups are ready.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from seamlessflow.infra.worker.judged_rewards import JUDGING
from seamlessflow.schemas.records import (
    GroupDropped,
    GroupExpired,
    GroupReady,
    Record,
    Trajectory,
)
from seamlessflow.schemas.topics import Headers
from seamlessflow.trainer.data.batch import (
    Batch,
    Prepared,
    SkippedStep,
    in_order,
    prepare,
    recorded_batch,
    select,
)
from seamlessflow.trainer.data.figures.chances import PASSED
from seamlessflow.trainer.data.figures.ended import CutErrors, SessionsOfStep, UnusedRewards
from seamlessflow.trainer.data.figures.of_batch import StepTokens
from seamlessflow.trainer.data.grouping import Group, Grouping
from seamlessflow.trainer.data.methods import MethodFailed
from seamlessflow.trainer.data.reuse import ReuseStore
from seamlessflow.trainer.data.rules import BatchLimits, BatchRules
from seamlessflow.trainer.data.sessions import (
    FailedSession,
    ValidSession,
    read,
    without_foreign,
)
from seamlessflow.trainer.data.staleness import StepClock, awaited
from seamlessflow.trainer.mixing.mixed_steps import Mixed, Mixing
from seamlessflow.trainer.recovery.control_state import ControlState
from seamlessflow.trainer.recovery.resume import GroupsGone, Resume

_log = logging.getLogger(__name__)

Records = list[Record]

NOTHING_OF_IT = "no_token"
"""Reason to drop a group without any turn by this policy, in a run with several policies. The
scheduler does not count it as a loss."""

EXPIRY_QUIET_MS = 500
"""Silence on `trajectories` after which a passed deadline counts.

Both topics are read side by side, so sessions finalized before the deadline may arrive after it.
"""

EXPIRY_LATEST_MS = 10_000
"""Longest time that a passed deadline is put off while sessions keep arriving."""


@dataclass(eq=False)
class Dataloader:
    """All sessions between `trajectories` and an optimizer step."""

    _resume: Resume
    _control_state: ControlState
    _policy: str
    rules: BatchRules
    """Rules for batches; a re-execution sets them anew for a lineage with other rules."""
    _limits: BatchLimits
    _added_ms: int
    """Time at which the newest session was added; before the first session, the start."""
    _positions: dict[int, int] = field(default_factory=dict)
    left: dict[int, int] | None = None
    """A recording's last offset at the start, by partition; partitions read to there are removed.
    None: live sessions."""
    follow: bool = False
    """True if the trainer waits for further sessions in the recording."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Groups dropped since the last step, by reason."""
    newest_drop: str = ""
    """The last such drop's detail."""
    given_up: StepTokens = field(default_factory=StepTokens)
    """Tokens in those dropped groups that were complete."""
    mixing: Mixing = field(default_factory=Mixing)
    """Pools of stored sessions, and what is chosen from them."""
    policies: Collection[str] = ()
    """All policies in the run; their sessions may have turns by this policy. Empty: only this
    policy."""
    _unused: UnusedRewards = field(default_factory=UnusedRewards)
    _cut: CutErrors = field(default_factory=CutErrors)
    _sessions: SessionsOfStep = field(default_factory=SessionsOfStep)

    def __post_init__(self) -> None:
        resume = self._resume
        limits = self._limits
        self._grouping = Grouping(resume.settled, resume.fixed, limits.attempts, limits.redundancy)
        self.store = ReuseStore.from_checkpoint(resume.reusable, resume.reused_until())
        """Groups that later steps may train again."""
        self._expiring = dict.fromkeys(self._control_state.expired, self._added_ms)
        # The scheduler counts them too: it may admit no other group before the next step.
        self.dropped = self._control_state.dropped.copy()
        self.newest_drop = self._control_state.newest_drop

    @property
    def ready(self) -> int:
        """Return how many groups wait for a step."""
        return len(self._grouping.ready)

    @property
    def ready_groups(self) -> Collection[str]:
        """Return the ids of the groups that wait for a step."""
        return self._grouping.ready.keys()

    @property
    def ended(self) -> bool:
        """Return whether a recording's sessions were all read, and no more will come."""
        return self.left is not None and not (self.left or self.follow)

    @property
    def used_up(self) -> bool:
        """Return whether no batch can follow: a recording was read, and no group is left."""
        return self.ended and not self.ready

    def clock(self, step: int) -> StepClock:
        """Return the clock that measures staleness at `step`."""
        recorded = self.rules.recorded
        return StepClock({} if recorded else self._control_state.steps_of, step, recorded)

    def wants_more(self, step: int) -> bool:
        """Return whether to read further sessions before `step`; waiting groups take memory."""
        if self.left or self.store.awaits:
            return True
        # However many are ready: a recorded step needs its own groups, `wait` those under way.
        full = self.ready >= self._limits.window
        return not full or step in self._resume.again or self.rules.on_stale == "wait"

    def add(
        self,
        trajectory: Trajectory,
        partition: int,
        offset: int,
        now_ms: int,
        trace: Headers = (),
    ) -> Records:
        """Add the session from a record on `trajectories`; return the records that follow."""
        self._positions[partition] = offset + 1
        self._added_ms = now_ms
        if self.left is not None and offset >= self.left.get(partition, offset + 1):
            del self.left[partition]
        if not self._concerned(trajectory):
            return []
        if not self.rules.train_foreign:
            trajectory = without_foreign(trajectory)
        session = read(
            trajectory,
            self._policy,
            partition,
            offset,
            trace,
            self.policies,
            self.rules.rewards,
            self.rules.chaining,
        )
        if self.store.add(session):
            return []
        if trajectory.purpose == "train":
            passed = isinstance(session, ValidSession) and session.reward >= PASSED
            self._sessions.add(trajectory, passed)
        records = self._grouping.add(session, now_ms)
        if trajectory.purpose == "eval":
            return records
        if records and isinstance(session, FailedSession):
            self._sessions.add_failed(session)
        records += self._without_turn(session.source.group_id, now_ms)
        unused = self._unused.warning(trajectory, self.rules.advantage, now_ms)
        return self._counted(records) + unused + self._cut.notice(trajectory, now_ms)

    def apply(self, record: Record, now_ms: int) -> None:
        """Apply a record on `control` that the control state has folded already."""
        if isinstance(record, GroupExpired) and record.group_id in self._control_state.expired:
            self._expiring.setdefault(record.group_id, now_ms)

    def expirations(self, now_ms: int) -> Records:
        """Make groups past their deadline ready or drop them; return their records.

        Their sessions get time to arrive first (`EXPIRY_QUIET_MS`).
        """
        quiet = now_ms - self._added_ms >= EXPIRY_QUIET_MS
        patience = EXPIRY_QUIET_MS if quiet else EXPIRY_LATEST_MS
        due = [name for name, since in self._expiring.items() if now_ms - since >= patience]
        expired: Records = []
        if self.ended:
            for name in self._grouping.open_groups():
                expired += self._counted(self._grouping.expire(name, now_ms))
        for name in due:
            del self._expiring[name]
            records = self._grouping.expire(name, now_ms)
            records += self._without_turn(name, now_ms)
            # Groups for evaluation are no loss: no step waits for them.
            state = self._control_state
            counts = name in state.under_way or name in state.exploring
            expired += self._counted(records) if counts else records
        return expired

    def next_batch(self, step: int, now_ms: int) -> tuple[Batch | SkippedStep | None, Records]:
        """Return the batch for `step` (None until it is complete) and records for dropped groups.

        If no group is left for the step, a `SkippedStep` stands for the batch.
        """
        clock = self.clock(step)
        if step in self._resume.again:
            return self._recorded(step, clock), []
        # A recording's batches must not depend on the order in which partitions are read.
        if self.left:
            return None, []
        if self.ready < self._limits.groups and not self._exhausted():
            return None, []
        mixed = self._mixed(step, clock)
        selection = select(mixed.groups, self._limits.groups, clock, self.rules)
        dropped = [self._give_up(group, now_ms) for group in selection.dropped]
        if dropped and self.mixing.rules.name and self.ready:
            return None, dropped  # the plan counted on them; the next call makes a new one
        full = len(selection.chosen) == self._limits.groups
        if (not full and not self._exhausted()) or self._waits(clock, now_ms):
            return None, dropped
        if not selection.chosen:
            return (None if self.rules.recorded else SkippedStep(step)), dropped
        reused = self.store.choose(step, clock, self.rules)
        if reused is None:
            return None, dropped
        added = self._added(mixed.added, clock)
        return Batch(step, (*selection.chosen, *reused, *added)), dropped

    def _mixed(self, step: int, clock: StepClock) -> Mixed:
        """Return the ready groups, with stored sessions if a mixer chooses some for the step."""
        ready = self._grouping.ready.values()
        if not self.mixing.rules.name:
            return Mixed(tuple(ready))
        # A stored session must not be spent on a later step's group.
        first = in_order(ready, clock, self.rules)[: self._limits.groups]
        return self.mixing.planned(step, first)

    def consumed(self, batch: Batch) -> None:
        """End the groups in `batch`: its step is committed."""
        for group in batch.new_groups:
            self._grouping.settle(group.group.group_id)
        self.store.trained(batch.step, batch.groups, self.rules)
        self.mixing.trained(batch.step, batch)

    def drop_metrics(self) -> dict[str, float]:
        """Return metrics about sessions since the last call: dropped groups, failures, limits."""
        metrics = {f"dropped/{reason}": float(count) for reason, count in self.dropped.items()}
        if masked := self.given_up.masked:
            metrics |= {f"masked/{reason}": float(count) for reason, count in masked.items()}
            metrics["tokens_masked"] = float(masked.total())
        if self.given_up.over_age:
            metrics["tokens_over_age"] = float(self.given_up.over_age)
        metrics |= self._sessions.take()
        self.dropped = Counter()
        self.given_up = StepTokens()
        return metrics

    def low_water(self, started_at: Mapping[int, int]) -> dict[int, int]:
        """Return the offsets from which a restarted trainer must read `trajectories`.

        `started_at`: the offsets that this process began at, for partitions that had no record
        since.
        """
        offsets = dict(started_at) | self._positions
        for source in (*self._grouping.held(), *self.store.held()):
            offsets[source.partition] = min(offsets[source.partition], source.offset)
        return offsets

    def _recorded(self, step: int, clock: StepClock) -> Batch | SkippedStep | None:
        commit = self._resume.again[step]
        if commit is None:
            return SkippedStep(step)
        groups = {name: self._grouping.ready.get(name) for name in commit.new_groups()}
        missing = [name for name, group in groups.items() if group is None]
        if gone := [*self.store.missing(commit.reused), *(missing if self.ended else ())]:
            raise GroupsGone(step, gone)
        reused = self.store.again(commit.reused, clock, self.rules)
        if missing or reused is None:
            return None
        mixed, lost = self.mixing.again(commit, list(filter(None, groups.values())))
        if lost:
            raise GroupsGone(step, lost)
        batch = recorded_batch(step, mixed.groups, clock, self.rules)
        added = recorded_batch(step, mixed.added, clock, self.rules)
        return replace(batch, groups=(*batch.groups, *reused, *added.groups))

    def _added(self, groups: Iterable[Group], clock: StepClock) -> list[Prepared]:
        """Return stored groups for the batch, without those that bring no token into the loss."""
        added = []
        for group in groups:
            try:
                prepared = prepare(group, clock, self.rules)
            except MethodFailed as error:
                _log.warning("stored group %s is left out: %s", group.group_id, error)
                continue
            if prepared.credited:
                added.append(prepared)
        return added

    def _exhausted(self) -> bool:
        """Return whether pacing admits no group before the next step: too many were dropped."""
        if self.rules.recorded:
            return self.ended
        # How many groups pacing admits ahead of a step, and replaces within it.
        limits = self._limits
        credits = (limits.lag + 1 + limits.refill) * limits.groups + limits.extra
        lost = self.dropped.total() - self.dropped[NOTHING_OF_IT]
        return not self._control_state.under_way and lost > 0 and lost >= credits - self.ready

    def _waits(self, clock: StepClock, now_ms: int) -> bool:
        under_way = self._control_state.under_way
        limit = self.rules.max_staleness
        return self.rules.on_stale == "wait" and bool(awaited(under_way, clock, limit, now_ms))

    def _concerned(self, trajectory: Trajectory) -> bool:
        """Return whether a session may belong to one of this policy's groups."""
        if trajectory.purpose == JUDGING:
            return False
        trains = trajectory.purpose == "train"
        if trajectory.policy == self._policy:
            return trains or not self.rules.recorded
        return trajectory.policy in self.policies and trains

    def _without_turn(self, group_id: str, now_ms: int) -> Records:
        """Drop a ready group if none of its sessions has a turn by the policy."""
        group = self._grouping.ready.get(group_id)
        if (
            not self.policies
            or group is None
            or any(session.has_turn for session in group.sessions)
        ):
            return []
        detail = f"no turn of {self._policy}"
        return [self._grouping.drop(group_id, NOTHING_OF_IT, detail, now_ms)]

    def _give_up(self, prepared: Prepared, now_ms: int) -> Record:
        reason, detail = prepared.dropped or ("filtered", prepared.filtered)
        self.given_up = self.given_up.with_groups([prepared])
        record = self._grouping.drop(prepared.group.group_id, reason, detail, now_ms)
        self._counted([record])
        return record

    def _counted(self, records: Records) -> Records:
        for record in records:
            if isinstance(record, GroupReady) and record.texts:
                self._sessions.add_explored(record)
            if isinstance(record, GroupDropped):
                self.dropped[record.reason] += 1
                self.newest_drop = record.detail
                _log.info("group %s: %s: %s", record.group_id, record.reason, record.detail)
        return records
