"""File of the states of spilled sessions: a cache of the log, which no other process ever reads.

It has no name once it is open, so it goes with the process however that ends. Main thread only.
"""

import os
import sqlite3
from pathlib import Path
from tempfile import mkstemp

from seamlessflow.infra.errors import SpillUnreadable

_PRAGMAS = (
    # A crash loses the file anyway, so nothing of it has to be safe; but a write that finds no room
    # must be undone, which needs a journal.
    *("journal_mode = MEMORY", "synchronous = OFF", "locking_mode = EXCLUSIVE"),
    "cache_size = -4096",
    "temp_store = MEMORY",
)
_PREFIX = "spilled-sessions-"


class SpillFile:
    """States by number in a table of SQLite, which uses freed space again."""

    def __init__(self, directory: Path) -> None:
        """Keep the directory; the file is made by the first `write`."""
        self._directory = directory
        self._database: sqlite3.Connection | None = None
        self.count = 0
        """Number of states."""
        self.held_bytes = 0
        """Their size."""
        self.reads = 0
        """Number of states that were taken."""

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
        """Close the file, which is gone then."""
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
    """Return a new database whose file has no name any more."""
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
