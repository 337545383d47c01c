"""Inbox of the manager's main thread: records, and actions that must run on that thread."""

import time
from collections.abc import Callable, Iterator

from seamlessflow.infra.inbox import Inbox
from seamlessflow.infra.kafka.client import Received

_LONGEST_S = 0.05
"""Deadlines and commits are looked at this often, however much comes in."""


class ManagerInbox(Inbox[Callable[[], None]]):
    """Runs the actions as it meets them, in the order in which everything came."""

    def batches(self, timeout_s: float) -> Iterator[list[Received]]:
        """Yield what is there, or comes first within the time; for `_LONGEST_S` at most."""
        batch = self.next_batch(timeout_s)
        until = time.monotonic() + _LONGEST_S
        while batch is not None:
            yield batch
            batch = self.next_batch(0) if time.monotonic() < until else None

    def next_batch(self, timeout_s: float) -> list[Received] | None:
        """Return the next records, an empty list after an action, or None after the time.

        Raises the error that another thread ended with.
        """
        item = self.get(timeout_s)
        if item is None or isinstance(item, list):
            return item
        item()
        return []
