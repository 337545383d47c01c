"""A double of the file of spilled sessions."""


class SpilledStates:
    """States of spilled sessions in memory."""

    def __init__(self) -> None:
        self._states: dict[int, bytes] = {}
        self._next = 0
        self.count, self.held_bytes, self.reads = 0, 0, 0

    def write(self, state: bytes) -> int:
        """Keep a state and return its number."""
        self._next += 1
        self._states[self._next] = state
        self.count += 1
        self.held_bytes += len(state)
        return self._next

    def take(self, number: int) -> bytes:
        """Return and drop a state."""
        self.reads += 1
        state = self._states[number]
        self.drop(number)
        return state

    def drop(self, number: int) -> None:
        """Drop a state."""
        self.count -= 1
        self.held_bytes -= len(self._states.pop(number))
