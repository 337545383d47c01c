"""Set of hashes of what a check is done with, eight bytes each. Pure.

All that an audit keeps of a command, turn, session or group that is over.
"""

import numpy as np
import numpy.typing as npt
import xxhash

Hashes = npt.NDArray[np.uint64]
_MERGED_FROM = 4_096
_SHARE = 16
"""The set takes ten times the memory of the array for each hash, and merging sorts all of them."""


def hash_of(name: object) -> int:
    """Return the hash that stands for a name, a string or a tuple of plain values."""
    return xxhash.xxh3_64_intdigest(repr(name).encode())


class Seen:
    """A growing set of names of which only hashes are kept."""

    def __init__(self) -> None:
        self._sorted: Hashes = np.empty(0, np.uint64)
        self._latest: set[int] = set()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._latest)

    def __contains__(self, name: object) -> bool:
        return self.has(hash_of(name))

    def add(self, name: object) -> None:
        """Add a name."""
        hashed = hash_of(name)
        if self.has(hashed):
            return
        self._latest.add(hashed)
        if len(self._latest) > max(_MERGED_FROM, len(self._sorted) // _SHARE):
            self._sorted = self.hashes()
            self._latest.clear()

    def has(self, hashed: int) -> bool:
        """Return True if a name with this hash was added."""
        if hashed in self._latest:
            return True
        place = int(np.searchsorted(self._sorted, np.uint64(hashed)))
        return place < len(self._sorted) and int(self._sorted[place]) == hashed

    def hashes(self) -> Hashes:
        """Return all hashes, sorted."""
        latest = np.fromiter(self._latest, np.uint64, len(self._latest))
        return np.sort(np.concatenate([self._sorted, latest]))
