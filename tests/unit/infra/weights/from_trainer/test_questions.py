"""Shares of a directory are equal, and all of them are every byte once."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.infra.weights.from_trainer.questions import PIECE_BYTES, pieces

SIZES = st.dictionaries(st.text("abc", min_size=1), st.integers(0, 40), max_size=5)


@given(SIZES, st.integers(1, 6))
def test_every_byte_is_in_one_share(sizes: dict[str, int], shares: int) -> None:
    sent = Counter(
        (piece.file, at)
        for share in range(shares)
        for piece in pieces(sizes, share, shares)
        for at in range(piece.start, piece.end)
    )
    assert sent == Counter({(file, at): 1 for file, size in sizes.items() for at in range(size)})


@given(SIZES, st.integers(1, 6))
def test_shares_differ_by_a_byte_at_most(sizes: dict[str, int], shares: int) -> None:
    lengths = [
        sum(piece.end - piece.start for piece in pieces(sizes, share, shares))
        for share in range(shares)
    ]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("size", [PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES + 1])
def test_a_piece_has_a_limit(size: int) -> None:
    lengths = [piece.end - piece.start for piece in pieces({"a": size}, 0, 1)]
    assert max(lengths) <= PIECE_BYTES
    assert sum(lengths) == size
