"""Inbox of the manager's main thread: records, and actions that must run on that thread.

A long silence in it shows a Kafka outage.
"""

import time
from collections.abc import Callable, Iterator

from seamlessflow.infra.inbox import Inbox
from seamlessflow.infra.kafka.client import Received

_LONGEST_S = 0.05
"""Longest time between looks at deadlines and commits, however much comes in."""
SILENCE_MS = 10_000
"""Time without a record that counts as an outage: many heartbeats, and far below a minute."""


class ManagerInbox(Inbox[Callable[[], None]]):
    """Runs each action when it meets it, in the order in which everything came."""

    def batches(self, timeout_s: float) -> Iterator[list[Received]]:
        """Yield what is there, or what comes first within the time; for `_LONGEST_S` at most."""
        batch = self.next_batch(timeout_s)
        until = time.monotonic() + _LONGEST_S
        while batch is not None:
            yield batch
            batch = self.next_batch(0) if time.monotonic() < until else None

    def next_batch(self, timeout_s: float) -> list[Received] | None:
        """Return the next records, an empty list after an action, or None after the time.

        Raises the error that ended another thread.
        """
        item = self.get(timeout_s)
        if item is None or isinstance(item, list):
            return item
        item()
        return []


class Outages:
    """Time since when gateways can read replies again, judged by what the manager itself reads.

    While Kafka is up, something arrives every second: gateways and workers send heartbeats. After a
    silence, the first record shows that replies arrive again too. From then on, an agent may ask
    again for an answer that it could not get. Times in milliseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._last_ms = clock()
        self._ended_ms = 0

    def read_records(self) -> None:
        """Note that records came just now."""
        now_ms = self._clock()
        if now_ms - self._last_ms >= SILENCE_MS:
            self._ended_ms = now_ms
        self._last_ms = now_ms

    def ended_ms(self) -> int:
        """Return when records came again after the last silence, or 0 without a silence."""
        return self._ended_ms
