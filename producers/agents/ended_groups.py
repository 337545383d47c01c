"""Groups that need no further session: their agents are stopped, and no more are started.

With `pacing.redundancy` a group begins more samples than it needs. Its `GroupReady` or
`GroupDropped` on `control` ends those left over. Called by `episode.py`, `play.py`, `runner.py`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from weakref import WeakValueDictionary

from seamlessflow.infra.kafka.client import END, Received
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.reader_thread import ReaderThread
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import GroupDropped, GroupReady, Record
from seamlessflow.schemas.topics import CONTROL

MOST = 10_000
"""Ended groups that are remembered. A task from an earlier one is played to its end."""


class EndedGroups:
    """The latest groups that ended. Used from the event loop."""

    def __init__(self) -> None:
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._waited_for: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()

    def __contains__(self, group: str) -> bool:
        return group in self._ended

    def end(self, groups: Iterable[str]) -> None:
        """Note that these groups have ended."""
        for group in groups:
            self._ended[group] = None
            if (event := self._waited_for.get(group)) is not None:
                event.set()
        while len(self._ended) > MOST:
            self._ended.popitem(last=False)

    async def until_end(self, group: str) -> None:
        """Return once `end` has named the group; until then wait without a limit."""
        if group not in self:
            event = self._waited_for.setdefault(group, asyncio.Event())
            await event.wait()


def ended_by(records: Iterable[Record]) -> list[str]:
    """Return the groups that these records from `control` end."""
    return [record.group_id for record in records if isinstance(record, GroupReady | GroupDropped)]


def watch_groups(
    settings: KafkaSettings,
    client_id: str,
    end: Callable[[list[str]], object],
    failed: Callable[[BaseException], None],
) -> ReaderThread:
    """Read `control` from its present end in a thread, which calls `end` and `failed`."""

    def deliver(received: list[Received]) -> None:
        if ended := ended_by(item.record for item in received):
            end(ended)

    reader = Reader(settings, client_id)
    reader.assign({(CONTROL.name, 0): END})
    return ReaderThread("ended groups", reader, deliver, failed).start()
