"""Everything the worker's main loop waits for, in one queue.

Filled by the slot's and the fleet's reader threads, the engine's thread (turns that have something
to say at once), the device thread (outcomes of steps) and the producer's (failed deliveries).
"""

import queue
from dataclasses import dataclass

from infra.errors import DeliveryFailed
from infra.kafka.client import Received
from producers.rollout.roles.outcomes import Outcome
from producers.rollout.turns.live_dispatch import LiveDispatch


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A record of a turn did not reach the log."""

    live: LiveDispatch
    error: DeliveryFailed


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Somebody asked the process to end."""


@dataclass(frozen=True, slots=True)
class ThreadFailed:
    """A thread ended by an error; the process cannot go on."""

    error: BaseException


Item = list[Received] | LiveDispatch | Outcome | Undelivered | StopAsked | ThreadFailed


class Inbox:
    """`put` from any thread, `take` from one."""

    def __init__(self) -> None:
        # A SimpleQueue whose wait a signal handler outlasts waits on for ever (CPython 3.11).
        self._queue: queue.Queue[Item] = queue.Queue()

    def put(self, item: Item) -> None:
        """Never blocks."""
        self._queue.put(item)

    def take(self, timeout_s: float) -> list[Item]:
        """All that is there, as soon as there is anything; nothing after `timeout_s`."""
        items: list[Item] = []
        try:
            items.append(self._queue.get(timeout=timeout_s))
            while True:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            return items
