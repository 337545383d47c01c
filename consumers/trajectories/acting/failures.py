"""Failures: an unexpected error about a session ends that session, not the manager.

If the manager raised the error again, it would end. Then every later owner of the partition would
end too, and all the partition's sessions would stop. So the session is closed as aborted, by events
that all managers fold alike. Main thread only; no method blocks.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from seamlessflow.consumers.trajectories.bus.outbox import Outbox
from seamlessflow.consumers.trajectories.decisions.context import Contexts
from seamlessflow.consumers.trajectories.decisions.endings import given_up
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.errors import ENDS_PROCESS
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)
_FAILURES = "seamlessflow_manager_failures_total"


class Failures:
    """Logs errors about single sessions and commands, and ends the sessions."""

    def __init__(self, contexts: Contexts, outbox: Outbox, metrics: Metrics) -> None:
        self._contexts = contexts
        self._outbox = outbox
        self._metrics = metrics

    @contextmanager
    def guard(self, partition: Partition, session: Session, doing: str) -> Iterator[None]:
        """Give the session up if the body raises, except for errors that must end the process."""
        try:
            yield
        except ENDS_PROCESS:
            raise
        except Exception as error:
            self._give_up(partition, session, doing, error)

    def event_failed(
        self, partition: Partition, session: Session, received: Received, error: Exception
    ) -> None:
        """Give up a session whose event could not be folded; the event is a dead letter."""
        if session.session_id in partition.given_up:
            return
        self._outbox.send_dead_letter(received, repr(error))
        self._give_up(partition, session, f"fold {named(received)}", error)

    def command_failed(self, received: Received, error: Exception) -> None:
        """Log a command that could not be decided, and send it to the dead letters."""
        session_id = getattr(received.record, "session_id", "")
        _log.error("cannot decide %s of %s", named(received), session_id, exc_info=error)
        self._metrics.counter(_FAILURES, about="command").inc()
        self._outbox.send_dead_letter(received, repr(error))

    def not_assembled(self, partition: Partition, session_id: str, error: Exception) -> None:
        """Log a session whose trajectory was emitted without tokens."""
        _log.error(
            "cannot assemble the trajectory of %s of partition %d",
            session_id,
            partition.number,
            exc_info=error,
        )
        self._metrics.counter(_FAILURES, about="trajectory").inc()

    def _give_up(
        self, partition: Partition, session: Session, doing: str, error: Exception
    ) -> None:
        session_id = session.session_id
        if session_id in partition.given_up:  # its end is on its way to the log
            return
        _log.error(
            "gives up session %s of partition %d: cannot %s",
            session_id,
            partition.number,
            doing,
            exc_info=error,
        )
        self._metrics.counter(_FAILURES, about="session").inc()
        partition.given_up.add(session_id)
        self._outbox.carry_out(partition, given_up(session, self._contexts.now(partition)))


@dataclass(frozen=True, slots=True)
class Acting:
    """A manager's partitions, with the objects shared by everything that acts in them."""

    partitions: dict[int, Partition]
    """The assigned partitions, by number; only `Ownership` changes the mapping."""
    contexts: Contexts
    outbox: Outbox
    failures: Failures


def named(received: Received) -> str:
    """Return a record's kind and its place on the log, for logs."""
    kind = type(received.record).__name__
    return f"{kind} at {received.topic}[{received.partition}]@{received.offset}"
