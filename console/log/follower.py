"""The thread that reads the log: first all topics from their beginning, then what is appended.

It commits nothing and writes nothing. If Kafka goes away, it waits, and goes on when Kafka is back.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from seamlessflow.console.log.lookup import GROUP
from seamlessflow.console.log.moment import READ_TOPICS
from seamlessflow.console.log.run_log import RunLog
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.errors import KafkaUnavailable, SeamlessFlowError
from seamlessflow.infra.kafka.client import BEGINNING, LogPartition
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.unreadable import Raw
from seamlessflow.infra.settings import KafkaSettings

_POLL_S = 0.2
_PAUSE_S = 0.1
"""Wait after a poll that was not full: records that come meanwhile are taken at once."""
_FULL = 400
_SILENCE_S = 3.0
_ASK_S = 2.0
_TOPICS_EVERY_S = 10.0
_CLOSE_S = 15.0
_AGAIN_S = 1.0
_OPTIONS: Mapping[str, Any] = {
    "enable.partition.eof": True,
    "fetch.message.max.bytes": 1_048_576,
    "queued.max.messages.kbytes": 32_768,
    # Each answer names all partitions, so few answers with many records take a fifth of the CPU.
    "fetch.min.bytes": 262_144,
    "fetch.wait.max.ms": 400,
}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadingProgress:
    """State of the reading."""

    read: int = 0
    """Records that were read."""
    left: int = 0
    """Offsets still to read, up to the ends that Kafka named last; 0 once it follows."""
    whole: bool = False
    """True once everything that was there at the start is read."""
    away: str = ""
    """Reason why Kafka cannot be read now; empty while it answers."""
    away_since_ms: int = 0


class Follower:
    """Reader that takes all topics into a log."""

    def __init__(
        self, settings: KafkaSettings, run_log: RunLog, changed: Callable[[], None] = lambda: None
    ) -> None:
        """Prepare; `changed` is called from its thread, for each batch and each outage."""
        self._settings = settings
        self._run_log = run_log
        self._changed = changed
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console", daemon=True)
        self._assigned: set[LogPartition] = set()
        self._unread: dict[LogPartition, int] = {}
        """First known end of each partition that is not read up to there yet."""
        self.following = ReadingProgress()

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._closing.set()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._follow()
            except SeamlessFlowError as error:
                _log.warning("%s", error)
                self._note(str(error))
            self._closing.wait(_AGAIN_S)

    def _follow(self) -> None:
        """Read until closed. If the reader fails for good, the caller makes a new one."""
        self._assigned.clear()
        rules = ReadingRules(decode=Raw)
        stopping = self._closing.is_set
        reader = Reader(self._settings, GROUP, rules=rules, stopping=stopping, **_OPTIONS)
        try:
            while not self._closing.is_set():
                self._ask(reader)
                self._read(reader, time.monotonic() + _TOPICS_EVERY_S)
        finally:
            reader.close()

    def _read(self, reader: Reader, until_s: float) -> None:
        """Read for some seconds, or until nothing has come for a while."""
        received_s = time.monotonic()
        while not self._closing.is_set():
            items = reader.poll(_POLL_S)
            now_s = time.monotonic()
            if items:
                received_s = now_s
                self._run_log.append(items)
                self._note("")
            if now_s > until_s or now_s - received_s > _SILENCE_S:
                return
            if len(items) < _FULL:
                self._closing.wait(_PAUSE_S)
                self._measure(reader)

    def _ask(self, reader: Reader) -> None:
        """Ask Kafka for its topics, which shows an outage, and begin to read the new ones."""
        try:
            counts = partition_counts(self._settings, _ASK_S)
            prefix = self._settings.topic_prefix
            fresh = [
                (topic, number)
                for topic in READ_TOPICS
                for number in range(counts.get(prefix + topic, 0))
                if (topic, number) not in self._assigned
            ]
            ends = reader.ends(fresh, _ASK_S) if fresh else {}
        except KafkaUnavailable as error:
            self._note(str(error))
            return
        self._unread |= {place: end for place, end in ends.items() if end > self._next(place)}
        reader.add({place: self._next(place) for place in fresh})
        self._assigned.update(fresh)
        self._measure(reader)
        self._note("")

    def _measure(self, reader: Reader) -> None:
        """Forget partitions that are read up to their first known end, and note the progress."""
        if self._unread:
            self._unread = {
                place: end for place, end in self._unread.items() if reader.position(place) < end
            }
            self._note(self.following.away)

    def _next(self, place: LogPartition) -> int:
        partition = self._run_log.index.partitions.get(place)
        return partition.end(partition.rows) if partition is not None else BEGINNING

    def _note(self, away: str) -> None:
        ends = self._unread.items()
        left = sum(end - max(0, self._next(place)) for place, end in ends)
        before = self.following
        since_ms = before.away_since_ms if before.away else now_ms()
        read = self._run_log.index.records
        whole = before.whole or bool(self._assigned and not self._unread)
        self.following = ReadingProgress(read, left, whole, away, since_ms if away else 0)
        if self.following != before:
            self._changed()
