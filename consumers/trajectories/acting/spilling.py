"""Bound on the memory of open sessions: the longest idle ones go to the spill store.

Called on the manager's main thread, behind the batches and deadlines of a round: no event or
decision is under way then that holds a session. A session with a running turn is never spilled.
"""

import logging
from collections.abc import Mapping

from seamlessflow.consumers.trajectories.decisions.deadlines import due_ms
from seamlessflow.consumers.trajectories.sessions.open_sessions import (
    OpenSessions,
    SpillStore,
)
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.infra.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)
_OPEN = "seamlessflow_manager_open_sessions"
_SPILLED = "seamlessflow_manager_spilled_sessions"
_SPILLED_BYTES = "seamlessflow_manager_spilled_bytes"
_READS = "seamlessflow_manager_spill_reads_total"
_SPARED = 0.95
"""Share of the budget that is left in use, so that not every round spills one session."""


class Spilling:
    """Spills sessions of all partitions of a manager while they take more than a budget."""

    def __init__(
        self,
        partitions: Mapping[int, Partition],
        store: SpillStore,
        budget_bytes: int,
        metrics: Metrics,
    ) -> None:
        self._partitions = partitions
        self._store = store
        self._budget_bytes = budget_bytes
        self._open = metrics.gauge(_OPEN)
        self._spilled = metrics.gauge(_SPILLED)
        self._spilled_bytes = metrics.gauge(_SPILLED_BYTES)
        self._reads = metrics.counter(_READS)
        self._reads_counted = 0
        self._refused = False
        """True after the store had no room, until the next `measure`."""

    def look(self) -> None:
        """Spill until the sessions in memory fit into the budget. Called once a round."""
        excess = self._in_memory() - self._budget_bytes
        if excess <= 0 or self._refused:
            return
        excess += int(self._budget_bytes * (1 - _SPARED))
        while excess > 0:
            largest = max(self._idle(), key=lambda session: session.bytes_in_memory, default=None)
            if largest is None:
                return
            before = largest.bytes_in_memory
            if not self._spill(largest):
                return
            excess -= before - largest.bytes_in_memory

    def measure(self) -> None:
        """Update the metrics, and try again if the store had no room. Called once a second."""
        self._refused = False
        self._open.set(sum(len(partition.sessions) for partition in self._partitions.values()))
        self._spilled.set(self._store.count)
        self._spilled_bytes.set(self._store.held_bytes)
        self._reads.inc(self._store.reads - self._reads_counted)
        self._reads_counted = self._store.reads

    def _spill(self, sessions: OpenSessions) -> bool:
        session = sessions.longest_idle()
        if session is None:
            return False
        try:
            sessions.spill(session, due_ms(session), self._store)
        except OSError as error:
            # The session stays in memory, which is no worse than before.
            _log.warning("cannot spill sessions, which stay in memory: %s", error)
            self._refused = True
        return not self._refused

    def _in_memory(self) -> int:
        return sum(partition.sessions.bytes_in_memory for partition in self._partitions.values())

    def _idle(self) -> list[OpenSessions]:
        partitions = self._partitions.values()
        return [
            partition.sessions
            for partition in partitions
            if partition.sessions.longest_idle() is not None
        ]
