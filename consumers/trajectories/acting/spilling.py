"""Spilling: the open sessions idle longest go to a file while sessions take too much memory.

The file is a cache of the log, and no other process ever reads it. It has no name once it is open,
so it goes when the process ends, however that happens. Main thread only: `Spilling` is called after
a round's batches and deadlines. Then no event or decision that holds a session is under way. A
session with a running turn is never spilled.
"""

import logging
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from tempfile import mkstemp

from seamlessflow.consumers.trajectories.decisions.deadlines import due_ms
from seamlessflow.consumers.trajectories.sessions.open_sessions import OpenSessions, SpillStore
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.infra.errors import SpillUnreadable
from seamlessflow.infra.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)
_OPEN = "seamlessflow_manager_open_sessions"
_SPILLED = "seamlessflow_manager_spilled_sessions"
_SPILLED_BYTES = "seamlessflow_manager_spilled_bytes"
_READS = "seamlessflow_manager_spill_reads_total"
_SPARED = 0.95
"""Share of the budget that stays in use, so that not every round spills one session."""
_PRAGMAS = (
    # A crash loses the file anyway, so nothing in it has to be safe. But a write that finds no room
    # must be undone, and that needs a journal.
    *("journal_mode = MEMORY", "synchronous = OFF", "locking_mode = EXCLUSIVE"),
    "cache_size = -4096",
    "temp_store = MEMORY",
)
_PREFIX = "spilled-sessions-"


class Spilling:
    """Spills a manager's sessions, from all its partitions, while they take more than a budget."""

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


class SpillFile:
    """States by number in an SQLite table, which uses freed space again."""

    def __init__(self, directory: Path) -> None:
        """Keep the directory; the file is made by the first `write`."""
        self._directory = directory
        self._database: sqlite3.Connection | None = None
        self.count = 0
        """Number of states in the file."""
        self.held_bytes = 0
        """Their total size."""
        self.reads = 0
        """Number of states taken so far."""

    def write(self, state: bytes) -> int:
        """Keep a state and return its number. Raises `OSError` if there is no room for it."""
        try:
            database = self._database = self._database or _opened(self._directory)
            number = database.execute("INSERT INTO states (state) VALUES (?)", (state,)).lastrowid
        except sqlite3.Error as error:
            raise OSError(f"{self._directory}: {error}") from error
        self.count += 1
        self.held_bytes += len(state)
        return number or 0

    def take(self, number: int) -> bytes:
        """Return and drop a state. Raises `SpillUnreadable`."""
        state = self._dropped(number)
        self.reads += 1
        return state

    def drop(self, number: int) -> None:
        """Drop a state. Raises `SpillUnreadable`."""
        self._dropped(number)

    def close(self) -> None:
        """Close the file, which no longer exists then."""
        if self._database is not None:
            self._database.close()

    def _dropped(self, number: int) -> bytes:
        try:
            state = self._deleted(number)
        except (sqlite3.Error, LookupError) as error:
            raise SpillUnreadable(str(self._directory), repr(error)) from error
        self.count -= 1
        self.held_bytes -= len(state)
        return state

    def _deleted(self, number: int) -> bytes:
        if self._database is None:
            raise LookupError(number)
        statement = "DELETE FROM states WHERE number = ? RETURNING state"
        ((state,),) = self._database.execute(statement, (number,)).fetchall() or ((None,),)
        if not isinstance(state, bytes):
            raise LookupError(number)
        return state


def _opened(directory: Path) -> sqlite3.Connection:
    """Return a new database whose file no longer has a name."""
    directory.mkdir(parents=True, exist_ok=True)
    handle, name = mkstemp(prefix=_PREFIX, dir=directory)
    os.close(handle)
    try:
        database = sqlite3.connect(name, isolation_level=None)
        for pragma in _PRAGMAS:
            database.execute(f"PRAGMA {pragma}")
        database.execute("CREATE TABLE states (number INTEGER PRIMARY KEY, state BLOB NOT NULL)")
    finally:
        os.unlink(name)
    return database
