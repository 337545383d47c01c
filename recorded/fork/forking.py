"""Forks of recorded sessions, written as tasks whose sessions begin in the middle of those.

A fork has the task that agent and judge got. The topic `tasks` keeps it only for days; after that,
the run's task file still has it.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from seamlessflow.consumers.trajectories.sessions.assemble import assembled
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.disk import name_whole
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.fork.copying import NotForkable, RecordedOn, forked_prefix
from seamlessflow.recorded.fork.places import ForkRule
from seamlessflow.recorded.select.reading import Show, ended_sessions, partition_bounds
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.recorded.select.selection import Range, SessionSelection
from seamlessflow.scheduler.tasks.file import read
from seamlessflow.scheduler.tasks.forks import LARGEST_FORK_BYTES, fork_line
from seamlessflow.scheduler.tasks.source import TaskSource
from seamlessflow.schemas.forks import BEHIND_ANSWER
from seamlessflow.schemas.json_form import to_json
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.records import ForkedPrefix, Task
from seamlessflow.schemas.topics import TASKS

_OTHERS = {"eval": "of an evaluation", "explore": "of an exploration", "judge": "of a judge"}
_NO_TASK_ID = "opened without a task"
_NO_TASK = "no task on the log any more; name the run's file with --task-file"
_NO_TURN = "no such turn"


@dataclass(frozen=True, slots=True)
class ForkJob:
    """Sessions to fork, the places, and the file to write."""

    to: Path
    rule: ForkRule
    samples: int
    selection: SessionSelection = field(default_factory=SessionSelection)
    task_file: Path | None = None


@dataclass(slots=True)
class ForkOutcome:
    """Counts: forks, and by reason what was left out."""

    forks: int = 0
    sessions: int = 0
    """Sessions with at least one fork."""
    tokens: int = 0
    """Tokens before the places, over all forks."""
    played: int = 0
    """Recorded answers that would be given if each fork were played back once."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Count of sessions and turns, by reason."""
    examples: dict[str, str] = field(default_factory=dict)
    """The first one for each reason."""
    skipped: Skipped = field(default_factory=Skipped)

    chosen: int = 0
    """Sessions that ended and are chosen, forked or not."""
    matched: set[str] = field(default_factory=set)
    """Names in the selection that some session has."""

    def leave_out(self, reason: str, named: str, count: int = 1) -> None:
        """Count what is left out."""
        self.left_out[reason] += count
        self.examples.setdefault(reason, named)


def fork_sessions(
    kafka: KafkaSettings, job: ForkJob, show: Show, stopping: Stopping = never
) -> ForkOutcome:
    """Write the file with forks. It only appears once it is whole and has a fork.

    `show` is called with two counts: further events read, and all events to read. Raises
    `SettingsRejected`, `TasksRejected`, `ReadingStopped`, and what `read_partitions` raises.
    """
    job.rule.check()
    cluster = find_cluster(kafka, stopping=stopping).id
    bounds = partition_bounds(kafka, job.selection, stopping)
    outcome = ForkOutcome()
    tasks = _recorded_tasks(kafka, job.selection, job.task_file, outcome.skipped, stopping)
    total = sum(end - start for start, end in bounds.values())
    draft = job.to.with_name(f".{job.to.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            for number, span in bounds.items():
                log = RecordedOn(number, cluster, kafka.topic_prefix)
                part = _ForkedPartition(kafka, job, log, tasks, outcome)
                part.write(file, span, lambda count: show(count, total), stopping)
        if outcome.forks:
            name_whole(draft, job.to)
    finally:
        draft.unlink(missing_ok=True)
    return outcome


@dataclass(slots=True)
class _RecordedTasks:
    """Task payloads by group, and a file for groups whose tasks are gone from the log."""

    file: TaskSource | None = None
    _payloads: dict[str, bytes] = field(default_factory=dict)
    _known: dict[bytes, bytes] = field(default_factory=dict)
    """Each payload once, since all groups for a task share one."""

    def apply(self, task: Task) -> None:
        """Note a task that was issued."""
        self._payloads[task.group_id] = self._known.setdefault(task.payload, task.payload)

    def payload(self, session: Session) -> Mapping[str, Any] | None:
        """Return the session's task as an object, or None if neither log nor file has it."""
        opened = session.opened
        payload = self._payloads.get(opened.group_id)
        if payload is None and self.file is not None and opened.task_id:
            row = self.file.find(opened.task_id)
            payload = None if row is None else row.payload
        read: Any = None if payload is None else read_json(payload)
        return read if isinstance(read, dict) else None


class _ForkedPartition:
    """Forks from one partition's sessions."""

    def __init__(
        self,
        kafka: KafkaSettings,
        job: ForkJob,
        log: RecordedOn,
        tasks: _RecordedTasks,
        outcome: ForkOutcome,
    ) -> None:
        self._kafka = kafka
        self._job = job
        self._log = log
        self._tasks = tasks
        self._outcome = outcome
        self._fold = Refold(LoggedPartition(log.partition), job.selection)

    def write(
        self, file: BinaryIO, bounds: Range, count: Callable[[int], None], stopping: Stopping
    ) -> None:
        sessions = ended_sessions(
            self._kafka, self._fold, bounds, self._outcome.skipped, count, stopping
        )
        for session in sessions:
            if not self._job.selection.chooses(assembled(session, self._log.partition)[0]):
                continue
            self._outcome.chosen += 1
            lines = self._lines(session)
            file.writelines(b"%b\n" % line for line in lines)
            self._outcome.forks += len(lines)
            self._outcome.sessions += bool(lines)
        self._outcome.matched |= self._fold.matched
        for session_id in self._fold.log.sessions:
            self._outcome.leave_out("not ended", session_id)
        if bounds[0] and self._fold.beginnings_gone:
            gone = f"partition {self._log.partition}"
            self._outcome.leave_out(
                "first events removed by retention", gone, self._fold.beginnings_gone
            )

    def _lines(self, session: Session) -> list[bytes]:
        opened = session.opened
        outcome = self._outcome
        if opened.purpose in _OTHERS:
            outcome.leave_out(_OTHERS[opened.purpose], session.session_id)
            return []
        task = self._tasks.payload(session)
        if task is None:
            outcome.leave_out(_NO_TASK if opened.task_id else _NO_TASK_ID, session.session_id)
            return []
        turns = self._job.rule.turns(session)
        if not turns:
            outcome.leave_out(_NO_TURN, session.session_id)
        lines = []
        seen = set()
        for turn_id in turns:
            fork = self._forked(session, turn_id)
            # Several samples of one prompt are one place.
            if fork is None or fork.hash in seen:
                continue
            seen.add(fork.hash)
            outcome.tokens += fork.length
            outcome.played += len(fork.turns)
            lines.append(fork_line(self._id(task, fork), task, self._job.samples, fork))
        return lines

    def _forked(self, session: Session, turn_id: str) -> ForkedPrefix | None:
        rule = self._job.rule
        named = f"{session.session_id}, turn {turn_id}"
        try:
            fork = forked_prefix(session, turn_id, self._log, rule.mode, rule.behind, rule.appended)
        except NotForkable as error:
            self._outcome.leave_out(error.reason.partition(":")[0], named)
            return None
        if len(to_json(fork)) > LARGEST_FORK_BYTES:
            self._outcome.leave_out(f"longer than {LARGEST_FORK_BYTES:,} bytes", named)
            return None
        return fork

    def _id(self, task: object, fork: ForkedPrefix) -> str:
        origin = fork.origin
        task_id = task.get("id", "") if isinstance(task, dict) else ""
        end = "~answer" if origin.behind == BEHIND_ANSWER else ""
        return f"{task_id}~{origin.session_id}~{origin.turn_id}{end}"


def _recorded_tasks(
    kafka: KafkaSettings,
    selection: SessionSelection,
    path: Path | None,
    skipped: Skipped,
    stopping: Stopping = never,
) -> _RecordedTasks:
    """Return the tasks on the log, and a file's tasks.

    Raises `TasksRejected`, and what `read_topic` raises.
    """
    tasks = _RecordedTasks(None if path is None else read(path))
    for item in read_topic(kafka, TASKS, skipped, stopping=stopping):
        task = item.record
        if isinstance(task, Task) and (not selection.groups or task.group_id in selection.groups):
            tasks.apply(task)
    return tasks
