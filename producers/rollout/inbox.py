"""The inbox of a rollout process's main loop: all that it waits for, in one queue.

These threads fill it:

- the reader threads of slot and fleet
- the engine's thread: dispatches that must be advanced at once
- the device thread: outcomes of moves
- the producer's thread: failed deliveries
"""

from dataclasses import dataclass

from seamlessflow.infra.errors import DeliveryFailed
from seamlessflow.infra.inbox import Inbox
from seamlessflow.producers.rollout.roles.outcomes import Outcome
from seamlessflow.producers.rollout.turns.live_dispatch import LiveDispatch


@dataclass(frozen=True, slots=True)
class Undelivered:
    """The report that a record of a turn did not reach the log."""

    live: LiveDispatch
    error: DeliveryFailed


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The request to end the process (SIGTERM or Ctrl-C)."""


Item = LiveDispatch | Outcome | Undelivered | StopAsked
WorkerInbox = Inbox[Item]
