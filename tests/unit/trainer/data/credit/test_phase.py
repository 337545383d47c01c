"""The second phase of a step: columns come back to their tokens, whatever they were packed into."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from seamlessflow.trainer.data.chains import Chain
from seamlessflow.trainer.data.credit.batches import Credit
from seamlessflow.trainer.data.credit.columns import Column
from seamlessflow.trainer.data.credit.phase import by_chain, checked_credit
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.methods import ResultMalformed
from seamlessflow.trainer.data.packing import Layout, pack
from tests.builders.trainer.chains import some_chains


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


EPISODES = [
    [Episode(1.0, np.zeros(1), np.zeros(n, np.int32), lambda: np.zeros(0, np.int64))]
    for n in (2, 3)
]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([[Credit(np.zeros(2))]], r"groups of \[1\] sessions, not of \[1, 1\]"),
        ([[Credit(np.zeros(2))], [Credit(np.zeros(2))]], r"shape \[2\] for session 1, not \[3\]"),
        ([[Credit(np.zeros(2))], [Credit(np.array([0, np.nan, 0]))]], "nan for session 1"),
        ([[Credit(np.zeros(2))], [Credit(np.zeros(3), np.zeros(3))]], "targets of some sessions"),
        (
            [[Credit(np.zeros(2), np.zeros(2))], [Credit(np.zeros(3), np.zeros((3, 1)))]],
            r"targets of shape \[3, 1\]",
        ),
        (
            [[Credit(np.zeros(2), np.zeros(2))], [Credit(np.zeros(3), np.full(3, np.inf))]],
            "an infinite target",
        ),
    ],
)
def test_credit_that_no_step_can_be_trained_with_is_refused(
    found: list[list[Credit]], told: str
) -> None:
    with pytest.raises(ResultMalformed, match=told):
        checked_credit(found, EPISODES)


def test_a_critic_learns_nothing_where_the_target_is_no_number() -> None:
    found = [[Credit(np.zeros(2), np.array([1.0, np.nan]))], [Credit(np.ones(3), np.zeros(3))]]
    credit = checked_credit(found, EPISODES)
    assert credit[0][0].targets_N is not None and np.isnan(credit[0][0].targets_N[1])
    assert credit[1][0].advantages_N.tolist() == [1, 1, 1]
