"""Watch over the Kafka consumer groups that read for the run, in a separate thread.

The scheduler reads neither `requests` nor `tasks`; it asks Kafka every few seconds how far their
readers are. Called by `scheduler/controller.py`.
"""

import logging
import threading
from collections.abc import Mapping
from queue import Empty, SimpleQueue

from seamlessflow.infra.errors import KafkaRefused, KafkaUnavailable
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.topics.groups import GroupLookup
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.scheduler.state.unread import GroupLook

EVERY_S = 5.0
_ANSWER_S = 4.0
_log = logging.getLogger(__name__)


class GroupWatch:
    """The thread, and the looks that it took."""

    def __init__(self, settings: KafkaSettings, groups: Mapping[str, str]) -> None:
        """Begin; `groups` are the Kafka consumer groups by the topic that they read."""
        self._settings = settings
        self._groups = groups
        self._looks: SimpleQueue[GroupLook] = SimpleQueue()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="group watch", daemon=True)
        self._thread.start()

    def take(self) -> list[GroupLook]:
        """Return the looks since the last call."""
        taken = []
        try:
            while True:
                taken.append(self._looks.get_nowait())
        except Empty:
            return taken

    def close(self) -> None:
        """End the thread, waiting at most for one answer."""
        self._ending.set()
        self._thread.join(_ANSWER_S)

    def _run(self) -> None:
        # Two clients for all looks: a client that is closed with a request under way may crash.
        lookup = GroupLookup(self._settings)
        bounds = BoundsLookup(self._settings)
        while not self._ending.wait(EVERY_S):
            try:
                self._look(lookup, bounds)
            except KafkaUnavailable as error:
                _log.debug("no look at the Kafka consumer groups: %s", error)
            except KafkaRefused as error:
                _log.warning("the readers of requests and tasks are not watched: %s", error)
                break
        bounds.close()

    def _look(self, lookup: GroupLookup, bounds: BoundsLookup) -> None:
        for topic, group in self._groups.items():
            kept = bounds.bounds(bounds.partitions(topic, _ANSWER_S), _ANSWER_S)
            # After the ends: records read meanwhile then do not count as lag.
            members = lookup.find(group, _ANSWER_S).members
            committed = lookup.committed(group, _ANSWER_S)
            behind = {}
            for place, (start, end) in kept.items():
                offset = max(start, committed.get(place, start))
                behind[place[1]] = (offset, max(0, end - offset))
            look = GroupLook(topic=topic, group=group, members=len(members), behind=behind)
            self._looks.put(look)
