"""Shares of the bytes of a directory, one for each process that sends it. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PIECE_BYTES = 32 << 20
"""Most bytes that are sent at once."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a file's bytes."""

    file: str
    start: int
    end: int


def pieces(sizes: Mapping[str, int], share: int, shares: int) -> Iterator[Piece]:
    """Yield the pieces of a share, by names and offsets.

    `sizes` has the bytes of each file. The `shares` are equal, and together have every byte once.
    """
    total, before = sum(sizes.values()), 0
    first, last = total * share // shares, total * (share + 1) // shares
    for file, size in sorted(sizes.items()):
        start, end = max(first - before, 0), min(last - before, size)
        for at in range(start, end, PIECE_BYTES):
            yield Piece(file, at, min(at + PIECE_BYTES, end))
        before += size
