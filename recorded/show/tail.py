"""Records in partitions as they are appended, after those that were already there."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka.client import BEGINNING, LogPartition, Received
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.unreadable import Skipped, Unreadable
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Record

_POLL_S = 0.2
_SILENCE_S = 30.0
_ASK_EVERY_S = 10.0


class Tail:
    """Reader that reads some partitions from their beginning, for an observer.

    It commits nothing and writes no dead letters; what it cannot read is counted in `skipped`.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        places: Sequence[LogPartition],
        wanted: Callable[[Record], bool],
        skipped: Skipped,
        stopping: Stopping,
    ) -> None:
        self._settings = settings
        self._places = places
        self._wanted = wanted
        self._skipped = skipped
        self._stopping = stopping

    def batches(self) -> Iterator[list[Received]]:
        """Yield the wanted records: first all that were there, then the later ones as they arrive.

        A list may be empty, so that the caller looks at the clock. It ends once `stopping`. Raises
        `KafkaUnavailable` if Kafka does not answer for 30 s, and what `Reader.ends` raises.
        """
        # Partition ends are requested, since transaction ends may stand behind the last record.
        options: dict[str, Any] = {"enable.partition.eof": True}
        reader = Reader(self._settings, "show", stopping=self._stopping, **options)
        try:
            reader.assign(dict.fromkeys(self._places, BEGINNING))
            yield self._there(reader)
            yield from self._arriving(reader)
        finally:
            reader.close()

    def _there(self, reader: Reader) -> list[Received]:
        ends = {place: end for place, end in reader.ends(self._places).items() if end > 0}
        records: list[Received] = []
        heard_s = time.monotonic()
        while ends and not self._stopping():
            if arrived := reader.poll(_POLL_S):
                heard_s = time.monotonic()
            records += self._kept(arrived)
            ends = {place: end for place, end in ends.items() if reader.position(place) < end}
            if ends and time.monotonic() - heard_s > _SILENCE_S:
                servers = self._settings.bootstrap_servers
                reason = f"no records of {list(ends)}"
                raise KafkaUnavailable(servers, _SILENCE_S, reason)
        return records

    def _arriving(self, reader: Reader) -> Iterator[list[Received]]:
        heard_s = time.monotonic()
        while not self._stopping():
            arrived = reader.poll(_POLL_S)
            if not arrived and time.monotonic() - heard_s > _ASK_EVERY_S:
                reader.ends(self._places, _SILENCE_S)  # a reader of a Kafka that is away is silent
            if arrived or time.monotonic() - heard_s > _ASK_EVERY_S:
                heard_s = time.monotonic()
            yield self._kept(arrived)

    def _kept(self, arrived: Sequence[Received]) -> list[Received]:
        kept = []
        for item in arrived:
            if isinstance(item.record, Unreadable):
                self._skipped.apply(item.topic, item.record)
            elif self._wanted(item.record):
                kept.append(item)
        return kept
