"""Dead letters: garbage, kept with its error and place on `<topic>.dlq`, in the same partition.

A topic has one burying process for each partition:

- the manager for `requests`, `sessions` and `ended_sessions`
- the acting scheduler for `control`, `fleet` and `arms`
- the rollout process for its slot
- the gateway for its replies
- the trainer for `trajectories`
- the agents for `tasks`

All others skip garbage. After a restart, many burying processes read the same records again. They
bury in offset order. So a letter is written only if it stands behind its partition's newest letter.

Burying never ends a process. A record that cannot be buried is logged, and still stands on its own
topic.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import DeliveryFailed, SeamlessFlowError
from seamlessflow.infra.kafka import log
from seamlessflow.infra.kafka.client import LogPartition, Received, dead_letter_headers
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.unreadable import Letter
from seamlessflow.infra.kafka.whole_topic import read_partitions
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import dead_letters_of

_MOST_HELD = 1_000
_LOOK_S = 15.0
"""Longest wait for a partition's dead letters; brokers elect another leader within it."""
_NOTHING = -1
_MOST_DIGITS = 19
_log = log.logger(__name__)


class DeadLetters:
    """One process's dead letters. `held` keeps them back until `release`.

    A stand-by process holds the newest, because the acting process buries the same garbage.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        producer: Producer,
        stopping: Stopping = never,
        *,
        held: bool = False,
    ) -> None:
        self._settings = settings
        self._producer = producer
        self._stopping = stopping
        self._held: deque[Letter] | None = deque(maxlen=_MOST_HELD) if held else None
        self._newest: dict[LogPartition, int] = {}
        """By partition, the offset of the newest garbage known to be buried."""
        self._looked: set[LogPartition] = set()
        self._obstacles: dict[str, tuple[str, float]] = {}
        """By topic, why its dead letters could not be read, and until when they are left alone."""

    def bury(self, letters: Sequence[Letter]) -> None:
        """Write those letters that are not there yet; they must be in offset order by partition.

        Waits for Kafka, at most 15 s without an answer. Logs what cannot be buried.
        """
        if self._held is not None:
            self._held.extend(letters)
            return
        for letter in letters:
            place = letter.topic, letter.partition
            if obstacle := self._obstacle(place):
                _not_buried(letter, obstacle)
            elif letter.offset > self._newest[place]:
                self._newest[place] = letter.offset
                send_letter(self._producer, letter)

    def look_anew(self, places: Iterable[LogPartition]) -> None:
        """Note that another process may have buried garbage from these partitions meanwhile."""
        self._looked.difference_update(places)

    def release(self) -> None:
        """Bury the held letters, and all later ones at once."""
        held = self._held
        self._held = None
        self.bury(held or ())

    def _obstacle(self, place: LogPartition) -> str:
        """Return why a partition's garbage cannot be buried; empty once its newest is known."""
        if place in self._looked:
            return ""
        topic, partition = place
        # By topic: a wait for each of its partitions would stop the reader for minutes.
        obstacle, until_s = self._obstacles.get(topic, ("", 0.0))
        if time.monotonic() < until_s:
            return obstacle
        dead = [(dead_letters_of(topic), partition)]
        letters = read_partitions(self._settings, dead, limit_s=_LOOK_S, stopping=self._stopping)
        try:
            newest = max(_source_offsets(letters), default=_NOTHING)
        except SeamlessFlowError as error:
            self._obstacles[topic] = str(error), time.monotonic() + log.EVERY_S
            return str(error)
        self._newest[place] = max(newest, self._newest.get(place, _NOTHING))
        self._looked.add(place)
        return ""


def send_letter(producer: Producer, letter: Letter) -> None:
    """Send a dead letter; a failure is logged, not raised."""

    def delivered(failure: DeliveryFailed | None, _: int) -> None:
        if failure is not None:
            _not_buried(letter, str(failure))

    topic = dead_letters_of(letter.topic)
    headers = dead_letter_headers(*letter[:3], letter.error, letter.headers)
    try:
        producer.send_bytes(topic, letter.value, letter.key, letter.partition, headers, delivered)
    except DeliveryFailed as failure:
        _not_buried(letter, str(failure))


def _source_offsets(letters: Iterable[Received]) -> Iterator[int]:
    for letter in letters:
        offset = dict(letter.headers).get("source-offset") or b""
        if offset.isdigit() and len(offset) <= _MOST_DIGITS:  # else another program wrote it
            yield int(offset)


def _not_buried(letter: Letter, reason: str) -> None:
    # One line in 30 s: `log.logger` leaves out the others, and counts them.
    _log.error(
        "%s[%d]@%d is not among the dead letters: %s",
        letter.topic,
        letter.partition,
        letter.offset,
        reason,
    )
