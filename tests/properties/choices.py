"""Random choices, read from bytes: Hypothesis draws and shrinks a string of bytes fast."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Bytes read one by one; after their end every choice is the first, as for a zero."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._next = 0

    @property
    def left(self) -> bool:
        """Return True if bytes are left."""
        return self._next < len(self._data)

    def below(self, bound: int) -> int:
        """Return a number from 0 below `bound`, which is at most 256."""
        value = self._data[self._next] if self.left else 0
        self._next += 1
        return value % bound

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        return options[self.below(len(options))]

    def one_in(self, number: int) -> bool:
        """Return True for one in `number` bytes; never once the bytes are spent."""
        return self.below(number) == number - 1
