"""The state that a trainer computes from `control` and needs after a restart: a pure fold.

The loop keeps it up to date, so a checkpoint can hold it together with its offset. A restarted
trainer folds only the records after that offset. The state depends only on records on `control`. It
keeps a `Commit` for each recorded step since the last checkpoint.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from seamlessflow.infra.weights.versions import PublishedWeights
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, StepCommitted, StepMethod
from seamlessflow.trainer.data.figures.evaluation import (
    EvaluatedGroup,
    EvaluationRound,
    Round,
    rounds_from,
    rounds_json,
)
from seamlessflow.trainer.data.staleness import GroupAdmission

SessionIds = tuple[str, ...]
_TrainerRecord = (
    r.GroupReady
    | r.GroupDropped
    | r.GroupConsumed
    | r.StepCommitted
    | r.StepSkipped
    | r.WeightsPublished
    | r.RunFinished
)
"""Records that a policy's trainer writes and that name the policy; earlier releases named none."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A recorded optimizer step."""

    step: int
    version: int
    lineage: str
    groups: Mapping[str, SessionIds]
    """Each group's sessions, in the batch's order."""
    methods: tuple[StepMethod, ...] = ()
    """The step's methods, only to compare; also empty if a checkpoint covers the step's record."""
    reused: tuple[str, ...] = ()
    """Groups among them that earlier steps trained, in the same order; without stored ones."""
    pools: Mapping[str, str] = field(default_factory=dict)
    """The pool that each stored group among them came from, by group."""
    replaced: tuple[tuple[str, str, str, str], ...] = ()
    """For each place that a stored session took: group, session that left, pool and stored
    session."""

    @classmethod
    def from_record(cls, record: StepCommitted) -> "Commit":
        """Return the step that a record commits."""
        groups = {group.group_id: group.sessions for group in record.groups}
        reused = tuple(group.group_id for group in record.groups if group.reused and not group.pool)
        return cls(
            record.step,
            record.version,
            record.lineage,
            groups,
            record.methods,
            reused,
            pools={group.group_id: group.pool for group in record.groups if group.pool},
            replaced=tuple(
                (group.group_id, each.session_id, each.pool, each.by)
                for group in record.groups
                for each in group.replaced
            ),
        )

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> "Commit":
        """Return the step from the values that `to_json` returned."""
        step, version, lineage, groups, reused, *stored = values
        members = {name: tuple(sessions) for name, sessions in groups.items()}
        # Earlier releases had no pools.
        pools, replaced = stored or ({}, [])
        return cls(
            step,
            version,
            lineage,
            members,
            reused=tuple(reused),
            pools=pools,
            replaced=tuple((group, session, pool, by) for group, session, pool, by in replaced),
        )

    def to_json(self) -> list[Any]:
        """Return the step as plain values, without its methods."""
        groups = dict(self.groups)
        stored = [dict(self.pools), self.replaced]
        return [self.step, self.version, self.lineage, groups, list(self.reused), *stored]

    def new_groups(self) -> dict[str, SessionIds]:
        """Return the groups that no earlier step trained, without stored ones."""
        again = {*self.reused, *self.pools}
        return {name: sessions for name, sessions in self.groups.items() if name not in again}


@dataclass(slots=True)
class ControlState:
    """The state after all records on `control` before `offset`."""

    policy: str
    """Policy that is trained; records of other policies' trainers are ignored."""
    offset: int = 0
    """Next offset of `control` to fold."""
    commits: dict[int, Commit] = field(default_factory=dict)
    """Each step's newest record, by step. Groups from steps before the last checkpoint are in
    `over` instead."""
    skipped: set[int] = field(default_factory=set)
    """Skipped steps since the last checkpoint."""
    ready: dict[str, SessionIds] = field(default_factory=dict)
    """Sessions by group, for groups that are ready and not over."""
    under_way: dict[str, GroupAdmission] = field(default_factory=dict)
    """Groups for training that are admitted and neither ready nor over."""
    rounds: dict[Round, EvaluationRound] = field(default_factory=dict)
    """Evaluations that are not reported yet, by version and split."""
    evaluated: dict[str, int] = field(default_factory=dict)
    """Newest version with an `EvaluationCompleted`, by split."""
    expired: set[str] = field(default_factory=set)
    """Groups past their deadline that are neither ready nor over."""
    exploring: set[str] = field(default_factory=set)
    """Exploration groups that are not over."""
    over: set[str] = field(default_factory=set)
    """Groups that are dropped, evaluated, explored, or trained before the last checkpoint."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Groups for training that were dropped since the newest step, by reason."""
    newest_drop: str = ""
    """The last such drop's detail."""
    consumed: set[str] = field(default_factory=set)
    """Groups in `commits` whose `GroupConsumed` is on `control`."""
    steps_of: dict[int, int] = field(default_factory=dict)
    """Optimizer steps that made each version, by version."""
    published: PublishedWeights | None = None
    """The weights published last."""
    finished: int = 0
    """Steps in the newest `RunFinished`."""

    @property
    def highest_version(self) -> int:
        """Return the largest version number ever used, or -1."""
        return max(self.steps_of, default=-1)

    def apply(self, record: Record, offset: int) -> None:
        """Fold one record; a repeated one changes nothing."""
        self.offset = offset + 1
        if isinstance(record, _TrainerRecord) and not self._own(record.policy):
            return
        match record:
            case r.GroupAdmitted() if not self._decided(record.group_id):
                self._admit(record)
            case r.GroupExpired() if not self._decided(record.group_id):
                if self._own(record.policy) or record.group_id in self.under_way:
                    self.expired.add(record.group_id)
            case r.GroupReady() if (evaluation := self._round_of(record.group_id)) is not None:
                evaluation.ended.append(EvaluatedGroup.from_record(record))
                self._end(record.group_id)
            case r.GroupReady() if record.group_id in self.exploring:
                self._end(record.group_id)
            case r.EvaluationCompleted():
                self.rounds.pop((record.version, record.split), None)
                newest = max(self.evaluated.get(record.split, -1), record.version)
                self.evaluated[record.split] = newest
            case r.GroupReady() if record.group_id not in self.over:
                self._end_wait(record.group_id)
                self.ready[record.group_id] = record.sessions
            case r.GroupDropped():
                self._drop(record)
            case r.GroupConsumed():
                self.consumed.add(record.group_id)
            case _:
                self._apply_step(record)

    def settle(self, step: int) -> None:
        """End the groups that steps before `step` trained: a checkpoint covers them."""
        for number in [number for number in self.commits if number < step]:
            self.over.update(self.commits.pop(number).groups)
        self.skipped = {number for number in self.skipped if number >= step}
        self.ready = {
            name: sessions for name, sessions in self.ready.items() if name not in self.over
        }
        self.consumed -= self.over

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            "policy": self.policy,
            "offset": self.offset,
            "commits": [commit.to_json() for commit in self.commits.values()],
            "ready": self.ready,
            "under_way": {
                name: [admission.version, admission.deadline_ms]
                for name, admission in self.under_way.items()
            },
            **{name: sorted(getattr(self, name)) for name in _SETS},
            "steps_of": list(self.steps_of.items()),
            "rounds": rounds_json(self.rounds),
            "evaluated": self.evaluated,
            "published": self.published and astuple(self.published),
            "finished": self.finished,
            "dropped": self.dropped,
            "newest_drop": self.newest_drop,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "ControlState":
        """Return the state from the values that `to_json` returned."""
        commits = map(Commit.from_json, values["commits"])
        published = values["published"]
        return cls(
            policy=values["policy"],
            offset=values["offset"],
            commits={commit.step: commit for commit in commits},
            ready={name: tuple(sessions) for name, sessions in values["ready"].items()},
            under_way={
                name: GroupAdmission(*admission) for name, admission in values["under_way"].items()
            },
            # Earlier releases had no explorations.
            **{name: set(values.get(name, ())) for name in _SETS},
            rounds=rounds_from(values["rounds"]),
            evaluated=dict(values["evaluated"]),
            steps_of=dict(values["steps_of"]),
            published=published and PublishedWeights(*published),
            finished=values["finished"],
            dropped=Counter(values["dropped"]),
            newest_drop=values["newest_drop"],
        )

    def _apply_step(self, record: Record) -> None:
        match record:
            case r.StepCommitted():
                self.commits[record.step] = Commit.from_record(record)
                self.skipped.discard(record.step)
                self.dropped.clear()
                self.steps_of[record.version] = record.step + 1
                for group in record.groups:
                    self._end_wait(group.group_id)
            case r.StepSkipped():
                self.commits.pop(record.step, None)
                self.skipped.add(record.step)
                self.dropped.clear()
                # The newest weights stay as they are, but count one step more.
                if self.steps_of:
                    self.steps_of[self.highest_version] = record.step + 1
            case r.WeightsPublished():
                self.steps_of.setdefault(record.version, record.step)
                self.published = PublishedWeights.from_record(record)
            case r.RunFinished():
                self.finished = record.steps

    def _own(self, policy: str) -> bool:
        return policy in ("", self.policy)

    def _decided(self, group_id: str) -> bool:
        return (
            group_id in self.over
            or group_id in self.ready
            or any(group_id in commit.groups for commit in self.commits.values())
        )

    def _admit(self, record: r.GroupAdmitted) -> None:
        if record.purpose == "eval":
            # An evaluation belongs to the policy that it names, which is the run's first one.
            if not self._own(record.policy):
                return
            evaluation = self.rounds.setdefault((record.version, record.split), EvaluationRound())
            evaluation.open[record.group_id] = record.deadline_ms
            evaluation.groups += 1
        elif record.role and not self._own(record.policy):
            return  # no session of it is of this policy
        elif record.purpose == "explore":
            self.exploring.add(record.group_id)
        else:
            version = record.version
            if not self._own(record.policy):
                # The record's version belongs to the other policy, which it names.
                version = self.published.version if self.published else 0
            admission = GroupAdmission(version, record.deadline_ms)
            self.under_way[record.group_id] = admission

    def _drop(self, record: r.GroupDropped) -> None:
        repeated = record.group_id in self.over
        if not repeated and self._round_of(record.group_id) is None:
            self.dropped[record.reason] += 1
            self.newest_drop = record.detail
        self._end(record.group_id)

    def _end(self, group_id: str) -> None:
        self._end_wait(group_id)
        self.exploring.discard(group_id)
        self.ready.pop(group_id, None)
        if evaluation := self._round_of(group_id):
            del evaluation.open[group_id]
        self.over.add(group_id)

    def _round_of(self, group_id: str) -> EvaluationRound | None:
        """Return the evaluation in which a group is open, or None."""
        return next(
            (evaluation for evaluation in self.rounds.values() if group_id in evaluation.open), None
        )

    def _end_wait(self, group_id: str) -> None:
        self.under_way.pop(group_id, None)
        self.expired.discard(group_id)


_SETS = ("skipped", "expired", "exploring", "over", "consumed")
