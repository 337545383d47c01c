"""Tasks of judged sessions, from the topic `tasks`.

A thread reads the topic and keeps the newest tasks, one for each group. A task that is no longer
kept is looked up on the topic.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from threading import Lock
from typing import Any

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.kafka.client import BEGINNING, Received
from seamlessflow.infra.kafka.outage import WITHOUT_LIMIT, Outage
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Task
from seamlessflow.schemas.topics import TASKS


def groups_of(task: Task) -> list[str]:
    """Return the groups whose sessions work on a task: one, or one for each role."""
    return [role.group_id for role in task.roles] or [task.group_id]


class KeptTasks:
    """Task payloads by group, the newest up to a byte limit. Any thread."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._payloads: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def add(self, task: Task) -> None:
        """Keep a task, once for each of its groups; drop the oldest ones if there is no room."""
        with self._lock:
            for group_id in groups_of(task):
                if group_id not in self._payloads:
                    self._payloads[group_id] = task.payload
                    self._bytes += len(task.payload)
            while self._bytes > self._most_bytes and len(self._payloads) > 1:
                self._bytes -= len(self._payloads.popitem(last=False)[1])

    def get(self, group_id: str) -> bytes | None:
        """Return the group's task payload, or None if it is not kept."""
        with self._lock:
            return self._payloads.get(group_id)


class TaskPayloads:
    """A run's task payloads, for the event loop."""

    def __init__(
        self,
        settings: KafkaSettings,
        partitions: int,
        most_bytes: int,
        stopping: Stopping,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._stopping = stopping
        self._kept = KeptTasks(most_bytes)
        # The end of a partition that retention emptied counts as read.
        options: dict[str, Any] = {"enable.partition.eof": True}
        reader = Reader(settings, "reward-worker-tasks", stopping=stopping, **options)
        reader.assign({(TASKS.name, number): BEGINNING for number in range(partitions)})
        self._thread = ReaderThread("tasks", reader, self._deliver, failed).start()

    async def payload(self, group_id: str) -> bytes | None:
        """Return the group's task payload, or None if the log has none. Waits for Kafka."""
        if not group_id:
            return None
        return self._kept.get(group_id) or await asyncio.to_thread(self._found, group_id)

    async def close(self) -> None:
        """End the thread."""
        await asyncio.to_thread(self._thread.close)

    def _deliver(self, received: list[Received]) -> None:
        for item in received:
            if isinstance(item.record, Task):
                self._kept.add(item.record)

    def _found(self, group_id: str) -> bytes | None:
        # A further role's task lies in the partition of the first role's group.
        places = [(TASKS.name, number) for number in range(self._partitions)]
        ends = self._thread.ask(lambda reader: reader.ends(places, WITHOUT_LIMIT))
        outage = Outage(self._settings, self._stopping, WITHOUT_LIMIT)
        for place, end in ends.items():
            self._thread.await_position(place, end, outage)
        if (kept := self._kept.get(group_id)) is not None:
            return kept
        for key in (group_id, None):
            records = read_topic(self._settings, TASKS, Skipped(), key, self._stopping)
            with closing(records):  # type: ignore[type-var]
                for item in records:
                    if isinstance(item.record, Task) and group_id in groups_of(item.record):
                        return item.record.payload
        return None
