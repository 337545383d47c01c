"""Events of this manager on their way to the log and back.

Whether an event stands on the log, and where, is only known by reading it. But what is read back is
byte for byte what was sent, and equal bytes are equal records, so it need not be decoded.
"""

from schemas.codec import decode
from schemas.records import Record


class Echoes:
    """Records by their bytes, until they are read back. Safe in any thread."""

    def __init__(self) -> None:
        self._expected: dict[bytes, Record] = {}

    def expect(self, value: bytes, event: Record) -> None:
        """Notes an event that is about to be sent."""
        self._expected[value] = event

    def decode(self, value: bytes) -> Record:
        """The record that `value` encodes. Raises `UndecodableRecord`."""
        known = self._expected.pop(value, None)
        return decode(value) if known is None else known

    def forget(self) -> None:
        """Gives up what may never come back; if it does, it is decoded like any other."""
        self._expected.clear()
