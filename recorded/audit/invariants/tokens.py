"""Check that each trained token was sampled, step by step while a run goes on. Pure but for files.

`verify.py` does the same at a run's end, with all tokens at once. Here, a session's tokens are kept
until its group is trained or dropped. After that, only a hash of the trained ones is kept. If the
step is executed again later, it is compared with that hash. Where groups are trained again by plan,
tokens are kept as long as that may happen.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.recorded.audit.invariants.evidence import Kept
from seamlessflow.recorded.audit.invariants.ledger import Findings, LogPlace, Seen, place_of
from seamlessflow.recorded.audit.sampled_tokens import (
    FOREIGN,
    SampledFold,
    SampledSession,
    recorded_session,
    tokens_of,
)
from seamlessflow.recorded.audit.stored import elsewhere, pool_prefixes, steps_of_own
from seamlessflow.recorded.audit.trained_tokens import FileFault, TrainedFile, step_files
from seamlessflow.recorded.audit.verify import compare, planned, surviving_steps
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.tokens import shown_step, step_name
from seamlessflow.schemas.topics import SESSIONS, TRAJECTORIES
from seamlessflow.trainer.steps.trained import TrainedRun

TRAIN = "train"
CommitPlace = tuple[int, int, str]
"""Step, version and lineage."""


class TokensCheck:
    """Fold over `sessions` and `control`, compared with the files in `trained`.

    If `recorded`, it folds `trajectories` instead of `sessions`. `partitions`: the partition count
    of `sessions`. `most_tokens`: most tokens that are kept from finalized sessions. Beyond that,
    the oldest session's tokens are dropped and can no longer be checked.
    """

    def __init__(
        self,
        kept: Kept,
        trained: Path,
        partitions: int,
        most_tokens: int | None = None,
        recorded: bool = False,
    ) -> None:
        self.findings = Findings("tokens")
        self._kept = kept
        self._trained = trained
        self._partitions = partitions
        self._most_tokens = most_tokens
        self._recorded = recorded
        self._sampled = SampledFold()
        self._groups: dict[str, str] = {}
        """Group of each session whose tokens are kept; empty for one that is never trained."""
        self._imported: set[str] = set()
        """Sessions among them with tokens that another system sampled."""
        self._finalized: OrderedDict[str, int] = OrderedDict()
        """Token count of each finalized session that is kept, oldest first."""
        self._commits: list[r.StepCommitted] = []
        self._places: dict[CommitPlace, LogPlace] = {}
        self._compared: set[CommitPlace] = set()
        self._policies: set[str] = set()
        """Policies that are trained."""
        self._again: dict[str, int] = {}
        """By policy, the number of steps in which it may train a group again by plan."""
        self._trained_in: dict[tuple[str, str], int] = {}
        """By policy and group, the group's newest step, as long as it may be trained again."""
        self._over = Seen()
        """Groups that are dropped, or trained in a compared step, each with its policy."""
        self._known, self._contents = Seen(), Seen()
        """Sessions that were compared, with their steps; and their trained tokens."""
        self._given_up = Seen()
        """Sessions whose tokens were dropped."""
        self.prefixes: dict[str, str] = {}
        """Prefix by pool, for pools from another log."""
        self.stored: dict[str, SampledSession] = {}
        """Stored sessions from other logs, as far as they were read."""

    def wanted(self) -> frozenset[str]:
        """Return the sessions from other logs that were trained by steps still to compare."""
        steps = (step for step in self._commits if _commit_of(step) not in self._compared)
        return frozenset[str]().union(*map(elsewhere, steps))

    @property
    def open(self) -> int:
        """Count of tokens in finalized sessions that are neither trained nor given up."""
        trained = {group for _, group in self._trained_in}
        return sum(
            count for name, count in self._finalized.items() if self._groups[name] not in trained
        )

    def apply(self, received: Received) -> None:
        """Fold in a record; only events that count are passed in."""
        record = received.record
        match record:
            case r.LineageStarted():
                self._policies.add(record.policy)
                self._again[record.policy] = max(_steps_again(record), steps_of_own(record))
                self.prefixes |= pool_prefixes(record)
            case r.GroupDropped():
                self._end(record.policy, record.group_id)
            case r.StepCommitted():
                self._commits.append(record)
                self._places[_commit_of(record)] = place_of(received)
            case r.Trajectory() if self._recorded and record.session_id not in self._groups:
                self._recorded_session(record)
            case _ if received.topic == SESSIONS.name:
                self._event(received)

    def settle(self) -> None:
        """Compare the new steps. `sessions` was read to behind their commits."""
        steps = [
            step
            for step in surviving_steps(self._commits)
            if _commit_of(step) not in self._compared
        ]
        if steps:
            self._compare(steps)
        self._commits = [
            _shortened(commit) if _commit_of(commit) in self._compared else commit
            for commit in self._commits
        ]
        self._forget()

    def _event(self, received: Received) -> None:
        record = received.record
        session_id: str | None = getattr(record, "session_id", None)
        if isinstance(record, r.SessionOpened):
            self._groups[record.session_id] = _group_of(record)
        if session_id is not None and session_id not in self._groups:
            return  # it is over, or its beginning was removed
        self._sampled.apply(received.partition, record)
        if isinstance(record, r.SessionFinalized):
            count = self._sampled.count(record.session_id)
            self._finalized[record.session_id] = count

    def _recorded_session(self, record: r.Trajectory) -> None:
        self._groups[record.session_id] = _group_of(record)
        if any(node.origin == FOREIGN for node in record.nodes):
            self._imported.add(record.session_id)
        self._sampled.sessions[record.session_id] = recorded_session(record)
        self._finalized[record.session_id] = self._sampled.count(record.session_id)

    def _compare(self, steps: Sequence[r.StepCommitted]) -> None:
        faults: list[FileFault] = []
        files = [
            self._comparable_part(step, file)
            for step, file in step_files(self._trained, steps, faults)
        ]
        for step, what in faults:
            self._add(step, f"{step_name(step.step)}: {what}")
        asked = {run.session for file in files for run in file.runs}
        sessions = {
            name: self._sampled.sessions[name] for name in asked & self._sampled.sessions.keys()
        } | {name: self.stored[name] for name in asked & self.stored.keys()}
        verification = compare(steps, files, tokens_of(sessions))
        self.findings.checked += verification.tokens_checked - verification.mismatches
        self.findings.count += verification.mismatches + verification.trained_twice
        for commit in steps:
            self._compared.add(_commit_of(commit))
            if commit.step in verification.steps_missing:
                detail = (
                    f"{step_name(commit.step)}, version {commit.version}, "
                    f"has no file in {self._trained}"
                )
                self._add(commit, detail)
            for group in commit.groups:
                self._judge_members(commit, group)
                self._train(commit.policy, group.group_id, commit.step)
        places = {commit.step: self._places[_commit_of(commit)] for commit in steps}
        for deviation in verification.deviations:
            self.findings.count -= 1  # `add` counts it
            self.findings.add(places[deviation.step], str(deviation))

    def _judge_members(self, step: r.StepCommitted, group: r.StepGroup) -> None:
        """Judge a group's sessions: opened in it, and foreign only if others sampled them."""
        for name in group.sessions:
            opened_in = self._groups.get(name, group.group_id)
            if opened_in != group.group_id:
                origin = f"of group {opened_in}" if opened_in else "of no training"
                what = f"session {name} is {origin}, and stands in group {group.group_id}"
                self._add(step, f"{step_name(step.step)}: {what}")
        for name in group.foreign:
            if name in self._groups and name not in self._imported:
                what = f"session {name} is marked as foreign, but all of it was sampled here"
                self._add(step, f"{step_name(step.step)}: {what}")

    def _add(self, step: r.StepCommitted, detail: str) -> None:
        """Add a violation that a step's commit shows."""
        self.findings.add(self._places[_commit_of(step)], detail)

    def _comparable_part(self, step: r.StepCommitted, file: TrainedFile) -> TrainedFile:
        """Return a step's file with only those runs that can be compared."""
        by_session: dict[str, list[TrainedRun]] = {}
        for run in file.runs:
            by_session.setdefault(run.session, []).append(run)
        by_plan = planned(step)
        others = elsewhere(step)
        runs = (
            run
            for session_id, session_runs in by_session.items()
            for run in (
                self._of_pool(session_id, session_runs)
                if session_id in others
                else self._comparable(step, session_id, session_runs, session_id in by_plan)
            )
        )
        return file._replace(runs=list(runs))

    def _comparable(
        self, step: r.StepCommitted, session_id: str, runs: list[TrainedRun], by_plan: bool
    ) -> list[TrainedRun]:
        """Return a session's runs if its tokens are kept; otherwise judge them and return none."""
        count = sum(len(run.ids) for run in runs)
        content = (
            session_id,
            sorted((run.turn, run.offset, run.ids, run.logprobs, run.versions) for run in runs),
        )
        named = step.policy, session_id
        here = (*named, step.step) in self._known
        if named in self._known and (here or not by_plan or session_id not in self._groups):
            if here and content in self._contents:
                self.findings.checked += count
            elif here or by_plan:
                self.findings.not_checkable += count
            else:
                number = shown_step(step.step)
                what = f"session {session_id} is trained in step {number} and in an earlier one"
                self._add(step, what)
            return []
        if session_id not in self._groups and self._gone(session_id):
            self.findings.not_checkable += count
            return []
        for name in (named, (*named, step.step)):
            self._known.add(name)
        self._contents.add(content)
        return runs

    def _of_pool(self, session_id: str, runs: list[TrainedRun]) -> list[TrainedRun]:
        """Return a stored session's runs if its log was read, else none."""
        if session_id in self.stored:
            return runs
        self.findings.not_checkable += sum(len(run.ids) for run in runs)
        return []

    def _gone(self, session_id: str) -> bool:
        """Return True if the session's tokens were dropped, or removed before they were read."""
        if session_id in self._given_up:
            return True
        if self._recorded:
            return self._kept.cut_anywhere(TRAJECTORIES.name)
        number = partition_of(session_name(session_id), self._partitions)
        return not self._kept.whole((SESSIONS.name, number))

    def _forget(self) -> None:
        """Drop the tokens that no later step may train."""
        for session_id in list(self._finalized):
            group = self._groups[session_id]
            if not group or all((name, group) in self._over for name in self._policies or {""}):
                self._drop(session_id)
        most = self._most_tokens
        while most is not None and sum(self._finalized.values()) > most:
            self._drop(next(iter(self._finalized)))

    def _train(self, policy: str, group_id: str, step: int) -> None:
        """Note that a step trained a group; end it unless a later step may train it by plan."""
        if not (window := self._again.get(policy, 0)):
            self._end(policy, group_id)
            return
        self._trained_in[policy, group_id] = step
        over = [name for name, last in self._trained_in.items() if last + window < step]
        for name in over:
            del self._trained_in[name]
            self._end(*name)

    def _end(self, policy: str, group_id: str) -> None:
        # Older releases named no policy, and had one.
        names = {policy} if policy else self._policies or {""}
        self._policies |= names
        for name in names:
            self._over.add((name, group_id))

    def _drop(self, session_id: str) -> None:
        if self._groups[session_id]:
            self._given_up.add(session_id)
        del self._finalized[session_id], self._groups[session_id]
        self._imported.discard(session_id)
        self._sampled.sessions.pop(session_id, None)


def _group_of(session: r.SessionOpened | r.Trajectory) -> str:
    return session.group_id or session.session_id if session.purpose == TRAIN else ""


def _steps_again(started: r.LineageStarted) -> int:
    """Return how many steps after its newest one a group may be trained again, 0 for never."""
    reuse = orjson.loads(started.settings)["trainer"].get("reuse", {})
    return int(reuse["max_staleness"]) if reuse.get("groups") else 0


def _shortened(commit: r.StepCommitted) -> r.StepCommitted:
    """Return a judged commit without the parts that no later one needs."""
    if not commit.trained_tokens and not any(group.sessions for group in commit.groups):
        return commit
    groups = tuple(
        group if group.reused else replace(group, sessions=()) for group in commit.groups
    )
    return replace(commit, groups=groups, trained_tokens={})


def _commit_of(record: r.StepCommitted) -> CommitPlace:
    return record.step, record.version, record.lineage
