"""Questions from rollout processes to processes that send weights, and the answers, as JSON. Pure.

A question asks for a share of a directory's bytes; each process that sends it gets one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

TOKENIZER = "tokenizer"
"""Name of a policy's tokenizer directory, beside its versions."""

ANSWER_S = 180.0
"""Limit for an answer: another transfer may be under way."""

PIECE_BYTES = 32 << 20
"""Most bytes that are sent at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsQuestion:
    """A question for a share of a directory."""

    directory: str
    """Name of a version's directory, or `tokenizer`."""
    manifest_sha256: str = ""
    """Hash of the version's manifest, so that another run's version is not sent."""
    share: int
    shares: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsAnswer:
    """The transfer that brings the share, or the reason why there is none."""

    reason: str = ""
    store: str = ""
    """Address of the store where the processes find each other, host:port."""
    rank: int = 0
    """Rank of the process that asked."""
    ranks: int = 0
    sizes: Mapping[str, int]
    """Each file's bytes in the directory."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a file's bytes."""

    file: str
    start: int
    end: int


def pieces(sizes: Mapping[str, int], share: int, shares: int) -> Iterator[Piece]:
    """Yield a share's pieces, ordered by file name and offset.

    `sizes` has each file's bytes. All shares are equal, and together they have every byte once.
    """
    total = sum(sizes.values())
    before = 0
    first = total * share // shares
    last = total * (share + 1) // shares
    for file, size in sorted(sizes.items()):
        start = max(first - before, 0)
        end = min(last - before, size)
        for at in range(start, end, PIECE_BYTES):
            yield Piece(file, at, min(at + PIECE_BYTES, end))
        before += size
