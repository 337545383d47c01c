"""The second phase of a step: columns come back to their tokens, whatever they were packed into."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from tests.builders.trainer.chains import some_chains
from trainer.data.chains import Chain
from trainer.data.credit.columns import Column
from trainer.data.credit.phase import by_chain
from trainer.data.packing import Layout, pack


def told(chain: Chain) -> list[float]:
    """Return the log-probs of the trained tokens of a chain."""
    return [float(value) for value in chain.tokens.logprobs_T[chain.tokens.trained_T]]


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("budget", [8, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_a_column_comes_back_to_the_tokens_it_was_computed_for(
    layout: Layout, budget: int, seed: int
) -> None:
    chains = some_chains(seed, 12)
    packed = pack(chains, budget, layout)
    answer = {Column.VALUE: [batch.logprobs_N for batch in packed]}
    found = by_chain(chains, packed, answer)
    assert [one[Column.VALUE].tolist() for one in found] == [told(chain) for chain in chains]


def test_columns_travel_with_the_tokens_into_micro_batches() -> None:
    chains = some_chains(1, 12)
    chains = [
        replace(one, columns={Column.VALUE: np.array(told(one), np.float32)}) for one in chains
    ]
    for batch in pack(chains, 16, "packed"):
        assert batch.columns[Column.VALUE].tolist() == batch.logprobs_N.tolist()


def test_no_chain_has_no_column() -> None:
    assert by_chain([], [], {Column.VALUE: []}) == []
