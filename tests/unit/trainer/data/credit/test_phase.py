"""The second phase of a step: columns come back to their tokens, and make advantages."""

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from seamlessflow.infra.user_functions import ResultMalformed
from seamlessflow.schemas.arrays import Float64s
from seamlessflow.trainer.data.advantages import ReturnRules
from seamlessflow.trainer.data.batch import Batch, prepare
from seamlessflow.trainer.data.chains import Chain, Column, credited
from seamlessflow.trainer.data.credit.batches import Credit
from seamlessflow.trainer.data.credit.phase import (
    by_chain,
    checked_credit,
    entropy_scaled,
    hybrid_scaled,
)
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.packing import Layout, pack
from tests.builders.trainer.chains import some_chains
from tests.builders.trainer.groups import NOW, RULES, group


def trained_logprobs(chain: Chain) -> list[float]:
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
    columns = by_chain(chains, packed, answer)
    assert [chain_columns[Column.VALUE].tolist() for chain_columns in columns] == [
        trained_logprobs(chain) for chain in chains
    ]


def test_columns_travel_with_the_tokens_into_micro_batches() -> None:
    chains = some_chains(1, 12)
    chains = [
        replace(chain, columns={Column.VALUE: np.array(trained_logprobs(chain), np.float32)})
        for chain in chains
    ]
    for batch in pack(chains, 16, "packed"):
        assert batch.columns[Column.VALUE].tolist() == batch.logprobs_N.tolist()


def test_no_chain_has_no_column() -> None:
    assert by_chain([], [], {Column.VALUE: []}) == []


EPISODES = [
    [Episode(1.0, np.zeros(1), np.zeros(n, np.int32), lambda: np.zeros(0, np.int64))]
    for n in (2, 3)
]


def learned(targets_N: Float64s) -> dict[Column, Float64s]:
    """Return the targets of a critic with one value."""
    return {Column.VALUE: targets_N}


@pytest.mark.parametrize(
    ("credit", "message"),
    [
        ([[Credit(np.zeros(2))]], r"groups of \[1\] sessions, not of \[1, 1\]"),
        ([[Credit(np.zeros(2))], [Credit(np.zeros(2))]], r"shape \[2\] for session 1, not \[3\]"),
        ([[Credit(np.zeros(2))], [Credit(np.array([0, np.nan, 0]))]], "nan for session 1"),
        (
            [[Credit(np.zeros(2))], [Credit(np.zeros(3), learned(np.zeros(3)))]],
            "targets of some sessions",
        ),
        (
            [
                [Credit(np.zeros(2), learned(np.zeros(2)))],
                [Credit(np.zeros(3), learned(np.zeros((3, 1))))],
            ],
            r"targets of shape \[3, 1\]",
        ),
        (
            [
                [Credit(np.zeros(2), learned(np.zeros(2)))],
                [Credit(np.zeros(3), learned(np.full(3, np.inf)))],
            ],
            "an infinite target",
        ),
    ],
)
def test_credit_that_no_step_can_be_trained_with_is_refused(
    credit: list[list[Credit]], message: str
) -> None:
    with pytest.raises(ResultMalformed, match=message):
        checked_credit(credit, EPISODES)


def test_a_critic_learns_nothing_where_the_target_is_no_number() -> None:
    first = Credit(np.zeros(2), learned(np.array([1.0, np.nan])))
    credit = checked_credit([[first], [Credit(np.ones(3), learned(np.zeros(3)))]], EPISODES)
    assert np.isnan(credit[0][0].targets[Column.VALUE][1])
    assert credit[1][0].advantages_N.tolist() == [1, 1, 1]


def batch(entropies: list[list[float]], advantages: list[list[float]]) -> Batch:
    """Return a batch of one group whose sessions have these numbers at their three tokens."""
    prepared = prepare(group("g", *range(len(entropies))), NOW, RULES)
    chains = [
        replace(
            credited(chain, said), columns={Column.ENTROPY: np.array(chain_entropies, np.float32)}
        )
        for chain, chain_entropies, said in zip(prepared.chains, entropies, advantages, strict=True)
    ]
    return Batch(0, (replace(prepared, chains=tuple(chains)),))


def trained(chain: Chain) -> list[float]:
    return [float(advantage) for advantage in chain.tokens.advantages_T[chain.tokens.trained_T]]


def scaled(step_batch: Batch, scale: float) -> list[list[float]]:
    return [trained(chain) for chain in entropy_scaled(step_batch, scale).chains()]


SIGNED = [[1.0, 2.0, 3.0], [-4.0, -4.0, -4.0]]


def test_a_session_counts_in_proportion_to_its_entropy() -> None:
    """Means 1 and 3, of the batch 2."""
    step_batch = batch([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]], SIGNED)
    assert scaled(step_batch, 1.0) == [[0.5, 1.0, 1.5], [-6.0, -6.0, -6.0]]


def test_a_smaller_scale_goes_part_of_the_way() -> None:
    step_batch = batch([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]], SIGNED)
    assert scaled(step_batch, 0.5) == [[0.75, 1.5, 2.25], [-5.0, -5.0, -5.0]]


@pytest.mark.parametrize("entropy", [0.0, 0.7])
def test_equal_entropies_change_nothing(entropy: float) -> None:
    assert scaled(batch([[entropy] * 3, [entropy] * 3], SIGNED), 1.0) == SIGNED


def test_all_chains_of_a_session_have_one_factor() -> None:
    step_batch = batch([[0.0] * 3, [2.0] * 3, [4.0] * 3], [[1.0] * 3] * 3)
    (prepared,) = step_batch.groups
    first, two, other = prepared.chains
    joined = (first, replace(two, session_id=first.session_id), other)
    step_batch = Batch(0, (replace(prepared, chains=joined),))
    assert scaled(step_batch, 1.0) == [[0.5] * 3, [0.5] * 3, [2.0] * 3]


def test_the_mean_is_over_tokens_not_over_sessions() -> None:
    """A session of three tokens at 1 and one of a single token at 5: the mean is 2."""
    step_batch = batch([[1.0] * 3, [5.0] * 3], [[1.0] * 3] * 2)
    (prepared,) = step_batch.groups
    first, other = prepared.chains
    short = of_first_token(other, {Column.ENTROPY: 5.0})
    step_batch = Batch(0, (replace(prepared, chains=(first, short)),))
    assert scaled(step_batch, 1.0) == [[0.5] * 3, [2.5]]


def of_first_token(chain: Chain, columns: Mapping[Column, float]) -> Chain:
    """Return the chain with its first trained token alone, and these columns of it."""
    trained_T = chain.tokens.trained_T.copy()
    trained_T[np.flatnonzero(trained_T)[1:]] = False
    return replace(
        chain,
        tokens=replace(chain.tokens, trained_T=trained_T),
        columns={name: np.array([value], np.float32) for name, value in columns.items()},
    )


EXACT = ReturnRules(epsilon=0.0)
SPREAD = [[1.0, 1.0, 1.0], [3.0, 3.0, 3.0]]
"""Numbers of a deviation of 1 from their mean."""


def hybrid(
    entropies: list[list[float]],
    shares: list[list[float]],
    scale: float,
    rules: ReturnRules = EXACT,
) -> list[list[float]]:
    """Return advantages of tokens with these entropies and these probabilities of the likeliest."""
    (prepared,) = batch(entropies, SIGNED[: len(entropies)]).groups
    chains = tuple(
        replace(chain, columns={**chain.columns, Column.TOP_SHARE: np.array(values, np.float32)})
        for chain, values in zip(prepared.chains, shares, strict=True)
    )
    step_batch = Batch(0, (replace(prepared, chains=chains),))
    return [trained(chain) for chain in hybrid_scaled(step_batch, scale, rules).chains()]


def test_a_token_of_more_entropy_than_the_mean_counts_more() -> None:
    assert hybrid(SPREAD, [[0.5] * 3] * 2, 0.25) == [[0.75, 1.5, 2.25], [-5.0, -5.0, -5.0]]


def test_a_token_whose_likeliest_have_more_probability_than_the_mean_counts_less() -> None:
    shares = [[0.75] * 3, [0.25] * 3]
    assert hybrid([[0.5] * 3] * 2, shares, 0.25) == [[0.75, 1.5, 2.25], [-5.0, -5.0, -5.0]]


def test_both_distances_are_added_token_by_token() -> None:
    """Distances of entropies are -1 and 1, of probabilities 1 and -1 within each session."""
    shares = [[0.75, 0.25, 0.25], [0.75, 0.75, 0.25]]
    assert hybrid(SPREAD, shares, 0.25) == [[0.5, 2.0, 3.0], [-4.0, -4.0, -6.0]]


@pytest.mark.parametrize(("far", "factor"), [(6.0, 1.5), (-6.0, 0.5)])
def test_no_token_is_farther_than_two_deviations(far: float, factor: float) -> None:
    """The last one is 5 / sqrt(5) = 2.24 deviations from the mean, the others 0.45."""
    near = 1 - np.sign(far) * 0.25 / np.sqrt(5)
    answer = hybrid([[0.0] * 3, [0.0, 0.0, far]], [[0.5] * 3] * 2, 0.25)
    assert answer[0] == pytest.approx([near, 2 * near, 3 * near])
    assert answer[1] == pytest.approx([-4 * near, -4 * near, -4 * factor])


@pytest.mark.parametrize(("entropy", "share"), [(0.0, 1.0), (0.7, 0.3)])
def test_equal_tokens_change_nothing_and_give_no_nan(entropy: float, share: float) -> None:
    equal = [[entropy] * 3] * 2
    assert hybrid(equal, [[share] * 3] * 2, 0.5) == SIGNED
    assert hybrid(equal, [[share] * 3] * 2, 0.5, ReturnRules(deviation="sample")) == SIGNED


def test_the_only_token_of_a_batch_keeps_its_advantage() -> None:
    (prepared,) = batch([[0.0] * 3] * 2, SIGNED).groups
    only = of_first_token(prepared.chains[1], {Column.ENTROPY: 0.4, Column.TOP_SHARE: 0.7})
    step_batch = Batch(0, (replace(prepared, chains=(only,)),))
    for rules in (EXACT, ReturnRules(epsilon=0.0, deviation="sample")):
        (chain,) = hybrid_scaled(step_batch, 0.5, rules).chains()
        assert trained(chain) == [-4.0]


def test_the_divisor_is_that_of_all_deviations() -> None:
    """With an epsilon of 1 the distance is halved; a sample's deviation is larger."""
    shares = [[0.5] * 3] * 2
    halved = hybrid(SPREAD, shares, 0.5, ReturnRules(epsilon=1.0))
    assert halved == [[0.75, 1.5, 2.25], [-5.0, -5.0, -5.0]]
    of_sample = hybrid(SPREAD, shares, 0.5, ReturnRules(epsilon=0.0, deviation="sample"))
    assert of_sample[1] == pytest.approx([-4 * (1 + 0.5 * np.sqrt(5 / 6))] * 3)


def test_a_batch_without_a_trained_token_stays_as_it_is() -> None:
    empty = Batch(0, ())
    assert entropy_scaled(empty, 1.0) == empty
    assert hybrid_scaled(empty, 0.5, EXACT) == empty
