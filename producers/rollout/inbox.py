"""Everything the worker's main loop waits for, in one queue.

Filled by the slot's and the fleet's reader threads, the engine's thread (turns that have something
to say at once), the device thread (outcomes of steps) and the producer's (failed deliveries).
"""

from dataclasses import dataclass

from infra.errors import DeliveryFailed
from infra.inbox import Inbox
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


Item = LiveDispatch | Outcome | Undelivered | StopAsked
WorkerInbox = Inbox[Item]
