"""Events of this manager on their way to the log and back.

An event counts only once it is read back. It comes back byte for byte as it was sent, and equal
bytes are equal records, so keeping the record saves decoding it.
"""

from seamlessflow.schemas.codec import decode
from seamlessflow.schemas.records import Record


class Echoes:
    """Sent records by their bytes, until they are read back. Safe to call from any thread."""

    def __init__(self) -> None:
        self._expected: dict[bytes, Record] = {}

    def expect(self, value: bytes, event: Record) -> None:
        """Keep an event that is about to be sent."""
        self._expected[value] = event

    def decode(self, value: bytes) -> Record:
        """Return the record that `value` encodes. Raises `UndecodableRecord`."""
        record = self._expected.pop(value, None)
        # Unknown: a worker's event, a former owner's, or one that was forgotten.
        return decode(value) if record is None else record

    def forget(self) -> None:
        """Drop all events: some may never come back, the others are decoded like any record."""
        self._expected.clear()
