"""Check that every group is trained in one step of the surviving lineage, or dropped. Pure.

With several policies, each trains or drops it once. If a step trains a group again by plan, it
marks the group with how many earlier steps trained it.

Only `control` decides, in its one order. A trainer that resumes executes the steps behind its
checkpoint again, in a new lineage. The old lineage's steps before the new one's first step survive.
If a group's step did not survive, the group is open until that step was executed again.

Pacing admits a group, or an agent opens its sessions by itself. Sessions for pacing's tasks have
the id that follows from group, sample and attempt. A session without a group is a group by itself.
Training on a recording has its trajectories' groups. Sessions that go on from an ended one begin at
the place for which their group was admitted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.audit.invariants.evidence import Kept
from seamlessflow.recorded.audit.invariants.ledger import (
    Findings,
    LogPlace,
    Seen,
    hash_of,
    place_of,
)
from seamlessflow.recorded.audit.stored import OWN
from seamlessflow.recorded.audit.verify import surviving_steps
from seamlessflow.schemas import records as r
from seamlessflow.schemas.arrays import UInt64s
from seamlessflow.schemas.identity import session_id
from seamlessflow.schemas.tokens import shown_step, step_name
from seamlessflow.schemas.topics import CONTROL, SESSIONS, TRAJECTORIES, Topic

TRAIN = "train"
EVAL = "eval"
AuditedGroup = str | tuple[str, str]
"""A group's id; for a policy other than the first, the policy's name and the group's id."""
_OF_POLICY = (r.GroupAdmitted, r.GroupDropped, r.GroupConsumed, r.StepCommitted)


@dataclass(slots=True)
class _AuditedCommit:
    """A committed step; `record` is without its groups."""

    record: r.StepCommitted
    place: LogPlace
    groups: UInt64s
    again: Mapping[AuditedGroup, int] = field(default_factory=dict)
    """Its groups that are trained again by plan, with their marks."""
    elsewhere: frozenset[AuditedGroup] = frozenset()
    """Its groups that come from another log."""
    replaced: bool = False
    """True once it was judged as one that did not survive."""


class GroupsCheck:
    """Fold over `control` and session beginnings; if `recorded`, `control` and trajectories."""

    def __init__(self, kept: Kept, recorded: bool = False) -> None:
        self.findings = Findings("groups")
        self._kept = kept
        self._recorded = recorded
        self._opened_on: Topic = TRAJECTORIES if recorded else SESSIONS
        self._admitted = Seen()
        self._dropped = Seen()
        self._opened = Seen()
        """Groups whose sessions agents opened by themselves, or whose sessions were recorded."""
        self._first = ""
        """The run's first policy, which the first record names."""
        self._rounds: set[str] = set()
        """Evaluation groups that are not over."""
        self._exploring: set[str] = set()
        """Exploration groups that are not over."""
        self._epoch = 0
        """The newest epoch of a scheduler."""
        self._explored: dict[str, frozenset[str]] = {}
        """Sessions in each ready exploration that is not sampled again yet."""
        self._trained: UInt64s = np.empty(0, np.uint64)
        self._commits: list[_AuditedCommit] = []
        self._unjudged: list[tuple[_AuditedCommit, tuple[AuditedGroup, ...]]] = []
        self._evaluated = 0
        self._places: dict[str, r.ParentPlace] = {}
        """Places from which admitted groups go on."""
        self._going_on: list[tuple[LogPlace, r.SessionOpened, r.ForkOrigin]] = []
        """Sessions with a parent that are not judged yet."""
        self._late_drops: dict[AuditedGroup, LogPlace] = {}
        """Groups that were dropped after a step with them, which may not have survived."""

    @property
    def open(self) -> int:
        """Count of admitted or recorded groups that are not trained, dropped or evaluated."""
        over = np.union1d(self._trained, self._dropped.hashes())
        begun = self._opened if self._recorded else self._admitted
        others = len(self._rounds) + len(self._exploring)
        return int(np.count_nonzero(np.isin(begun.hashes(), over, invert=True))) + others

    def apply(self, received: Received) -> None:
        """Fold in a record; only events that count are passed in."""
        record = received.record
        if received.topic == CONTROL.name and isinstance(record, _OF_POLICY):
            self._first = self._first or record.policy
        match record:
            case r.SessionOpened() if record.purpose == TRAIN:
                if record.session_id != session_id(record.group_id, record.sample, record.attempt):
                    self._opened.add(record.group_id or record.session_id)
                if record.fork is not None and record.fork.origin.parent_return is not None:
                    self._going_on.append((place_of(received), record, record.fork.origin))
            case r.Trajectory() if self._recorded and record.purpose == TRAIN:
                self._opened.add(record.group_id or record.session_id)
            case r.SchedulerClaimed():
                self._epoch = max(self._epoch, record.epoch)
            case r.GroupAdmitted():
                self._admit(received, record)
            case r.GroupReady() if record.group_id in self._exploring:
                self._explored[record.group_id] = frozenset(record.sessions)
                self._evaluate(record.group_id)
            case r.GroupReady() | r.GroupExpired() if record.group_id in self._rounds:
                self._evaluate(record.group_id)
            case r.GroupDropped():
                self._drop(received, record)
            case r.GroupConsumed():
                self._consume(received, record)
            case r.StepCommitted():
                self._commit(received, record)

    def settle(self) -> None:
        """Judge which groups the surviving lineage trained.

        `sessions`, or a recording, was read to behind every commit.
        """
        self._judge_parents()
        if not self._unjudged:
            self._judge_dropped()
            return
        kept = {
            _name(step) for step in surviving_steps([audited.record for audited in self._commits])
        }
        surviving = [audited for audited in self._commits if _name(audited.record) in kept]
        unjudged = self._unjudged
        self._unjudged = []
        for commit, names in unjudged:
            self._judge_begun(commit, names)
            if _name(commit.record) in kept:
                self._judge_repeated(commit, names, surviving)
        self._trained = _together(audited.groups for audited in surviving)
        self._judge_dropped()
        last = {audited.record.policy: audited.record.step for audited in surviving}
        for commit in self._commits:
            newest = last.get(commit.record.policy, -1)
            if _name(commit.record) not in kept and commit.record.step <= newest:
                self._judge_replaced(commit)
        self.findings.checked = len(self._trained) + len(self._dropped) + self._evaluated

    def _admit(self, received: Received, record: r.GroupAdmitted) -> None:
        if record.purpose == TRAIN:
            # A group with a role belongs only to its policy.
            role = record.role and self._named(record.policy, record.group_id)
            self._admitted.add(role or record.group_id)
        else:
            (self._rounds if record.purpose == EVAL else self._exploring).add(record.group_id)
        if record.fork_at is not None:
            self._places.setdefault(record.group_id, record.fork_at)
        # An admission by a replaced scheduler does not count.
        if record.explored and record.epoch >= self._epoch:
            self._judge_again(received, record)

    def _judge_again(self, received: Received, record: r.GroupAdmitted) -> None:
        """Judge a group that samples explored sessions again. Each exploration allows that once."""
        group = f"group {record.group_id} samples {record.explored} again"
        sessions = self._explored.pop(record.explored, None)
        if sessions is None:
            if self._whole:
                why = "which is no ready exploration, or was sampled again before"
                self.findings.add(place_of(received), f"{group}, {why}")
            return
        if strange := {seed.session_id for seed in record.seeds} - sessions:
            detail = f"{group}, of which session {min(strange)} is not"
            self.findings.add(place_of(received), detail)

    def _evaluate(self, group_id: str) -> None:
        self._rounds.discard(group_id)
        self._exploring.discard(group_id)
        self._evaluated += 1
        self.findings.checked += 1

    def _drop(self, received: Received, record: r.GroupDropped) -> None:
        group_id = record.group_id
        if not record.reason:
            self.findings.add(place_of(received), f"group {group_id} is dropped without a reason")
        if group_id in self._rounds or group_id in self._exploring:
            self._evaluate(group_id)
        elif (name := self._named(record.policy, group_id)) not in self._dropped:
            self._dropped.add(name)
            self.findings.checked += 1
            if any(hash_of(name) in commit.groups for commit in self._commits):
                self._late_drops[name] = place_of(received)

    def _judge_dropped(self) -> None:
        """Judge drops after a commit: the group's step must not have survived."""
        for name, place in list(self._late_drops.items()):
            if hash_of(name) in self._trained:
                detail = f"group {_shown(name)} is dropped, although a step trained it"
                self.findings.add(place, detail)
                del self._late_drops[name]

    def _judge_parents(self) -> None:
        """Judge where sessions with a parent begin. Those whose group was not read yet wait."""
        waiting = []
        for log_place, opened, origin in self._going_on:
            place = self._places.get(opened.group_id)
            if place is None and opened.group_id not in self._admitted:
                waiting.append((log_place, opened, origin))
                continue
            asked = None if place is None else (place.session_id, place.parent_return)
            if (origin.session_id, origin.parent_return) != asked:
                actual = f"goes on from {origin.session_id}, return {origin.parent_return:g}"
                detail = f"session {opened.session_id} {actual}; its group was not admitted to"
                self.findings.add(log_place, detail)
        self._going_on = waiting

    def _consume(self, received: Received, record: r.GroupConsumed) -> None:
        step = record.step
        group_id = record.group_id
        policy = record.policy or self._first
        mine = (
            audited
            for audited in reversed(self._commits)
            if (audited.record.policy or self._first) == policy
        )
        commit = next((audited for audited in mine if audited.record.step == step), None)
        name = self._named(record.policy, group_id)
        if commit is None and not self._whole:
            self.findings.not_checkable += 1
        elif commit is None or hash_of(name) not in commit.groups:
            detail = f"group {group_id} is consumed in {step_name(step)}"
            self.findings.add(place_of(received), f"{detail}, whose newest commit is without it")

    def _commit(self, received: Received, record: r.StepCommitted) -> None:
        names = tuple(self._named(record.policy, group.group_id) for group in record.groups)
        groups = np.array([hash_of(name) for name in names], np.uint64)
        marks = {
            name: group.reused
            for name, group in zip(names, record.groups, strict=True)
            if group.reused
        }
        others = frozenset(
            name
            for name, group in zip(names, record.groups, strict=True)
            if group.pool not in ("", OWN)
        )
        bare = replace(record, groups=())
        commit = _AuditedCommit(bare, place_of(received), groups, marks, others)
        self._commits.append(commit)
        self._unjudged.append((commit, names))
        for name in names:
            if name in self._dropped:
                number = shown_step(record.step)
                detail = f"group {_shown(name)} is in step {number}, although it was dropped"
                self.findings.add(commit.place, detail)

    def _judge_begun(self, commit: _AuditedCommit, names: Iterable[AuditedGroup]) -> None:
        """Judge where a new step's groups come from: pacing, or an agent's own sessions."""
        for group in (name for name in names if name not in commit.elsewhere):
            name = _shown(group)
            if group in self._admitted or name in self._admitted or name in self._opened:
                continue
            if self._whole and not self._kept.cut_anywhere(self._opened_on.name):
                number = shown_step(commit.record.step)
                detail = f"group {name} is in step {number}, but was never admitted"
                no_other = (
                    "was never recorded" if self._recorded else "no agent opened it by itself"
                )
                self.findings.add(commit.place, f"{detail}, and {no_other}")
            else:
                self.findings.not_checkable += 1

    def _judge_repeated(
        self,
        commit: _AuditedCommit,
        names: tuple[AuditedGroup, ...],
        surviving: list[_AuditedCommit],
    ) -> None:
        """Judge a new step: each of its groups once, and in another surviving step only by plan."""
        policy = commit.record.policy
        number = commit.record.step
        others = {
            audited.record.step: audited
            for audited in surviving
            if audited is not commit and audited.record.policy == policy
        }
        theirs = _together(other.groups for other in others.values())
        for name in names:
            marked = commit.again.get(name, 0)
            group = f"group {_shown(name)} is in {step_name(number)}"
            hashed = hash_of(name)
            with_it = (
                {step: audited for step, audited in others.items() if hashed in audited.groups}
                if marked or hashed in theirs
                else {}
            )
            # The later of two steps has to mark it.
            unplanned = [
                step
                for step, audited in with_it.items()
                if not (marked if step < number else name in audited.again)
            ]
            before = sum(step < number for step in with_it)
            if unplanned:
                self.findings.add(
                    commit.place, f"{group} and in {[shown_step(step) for step in unplanned]}"
                )
            elif marked != before and self._whole:
                detail = f"{group}, marked as trained by {marked} steps before, and {before} did"
                self.findings.add(commit.place, detail)
            elif names.count(name) > 1:
                self.findings.add(commit.place, f"{group} more than once")

    def _judge_replaced(self, commit: _AuditedCommit) -> None:
        if commit.replaced:
            return
        commit.replaced = True
        present = np.union1d(self._trained, self._dropped.hashes())
        lost = int(np.count_nonzero(np.isin(commit.groups, present, invert=True)))
        if lost:
            step = f"{step_name(commit.record.step)} of lineage {commit.record.lineage}"
            detail = f"{lost} groups of {step} are in no step of the lineage that replaced it"
            self.findings.add(commit.place, detail)

    def _named(self, policy: str, group_id: str) -> AuditedGroup:
        return group_id if policy in ("", self._first) else (policy, group_id)

    @property
    def _whole(self) -> bool:
        return self._kept.whole((CONTROL.name, 0))


def _name(commit: r.StepCommitted) -> tuple[str, int]:
    return commit.lineage, commit.step


def _shown(name: AuditedGroup) -> str:
    return name if isinstance(name, str) else name[1]


def _together(groups: Iterable[UInt64s]) -> UInt64s:
    return np.unique(np.concatenate([np.empty(0, np.uint64), *groups]))
