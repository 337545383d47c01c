"""Tasks of recorded sessions: the payloads that agent and judge got, by group.

The topic `tasks` keeps them for days only; behind that, the file of tasks of the run has them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.deadline import Stopping, never
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.scheduler.tasks.file import read
from seamlessflow.scheduler.tasks.source import TaskSource
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.records import Task
from seamlessflow.schemas.topics import TASKS


@dataclass(slots=True)
class RecordedTasks:
    """Payloads by group, and a file for groups whose tasks are gone from the log."""

    file: TaskSource | None = None
    _payloads: dict[str, bytes] = field(default_factory=dict)
    _known: dict[bytes, bytes] = field(default_factory=dict)
    """Payloads by themselves: all groups of a task share one."""

    def apply(self, task: Task) -> None:
        """Take note of a task that was issued."""
        self._payloads[task.group_id] = self._known.setdefault(task.payload, task.payload)

    def of(self, session: Session) -> Mapping[str, Any] | None:
        """Return the object of the session's task, or None if it is nowhere."""
        opened = session.opened
        payload = self._payloads.get(opened.group_id)
        if payload is None and self.file is not None and opened.task_id:
            row = self.file.find(opened.task_id)
            payload = None if row is None else row.payload
        read: Any = None if payload is None else read_json(payload)
        return read if isinstance(read, dict) else None


def recorded_tasks(
    kafka: KafkaSettings,
    selection: SessionSelection,
    path: Path | None,
    skipped: Skipped,
    stopping: Stopping = never,
) -> RecordedTasks:
    """Return the tasks that are on the log, and those of a file.

    Raises `TasksRejected`, and what `read_topic` raises.
    """
    tasks = RecordedTasks(None if path is None else read(path))
    for item in read_topic(kafka, TASKS, skipped, stopping=stopping):
        task = item.record
        if isinstance(task, Task) and (not selection.groups or task.group_id in selection.groups):
            tasks.apply(task)
    return tasks
