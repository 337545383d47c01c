"""Advantages scaled by entropy: each session's in proportion to its mean entropy."""

from dataclasses import replace

import numpy as np
import pytest

from seamlessflow.trainer.data.batch import Batch, prepare
from seamlessflow.trainer.data.chains import Chain, credited
from seamlessflow.trainer.data.credit.columns import Column
from seamlessflow.trainer.data.credit.entropies import entropy_scaled
from tests.builders.trainer.groups import NOW, RULES, group


def batch(entropies: list[list[float]], advantages: list[list[float]]) -> Batch:
    """Return a batch of one group whose sessions have these numbers at their three tokens."""
    prepared = prepare(group("g", *range(len(entropies))), NOW, RULES)
    chains = [
        replace(credited(chain, said), columns={Column.ENTROPY: np.array(of, np.float32)})
        for chain, of, said in zip(prepared.chains, entropies, advantages, strict=True)
    ]
    return Batch(0, (replace(prepared, chains=tuple(chains)),))


def trained(chain: Chain) -> list[float]:
    return [float(one) for one in chain.tokens.advantages_T[chain.tokens.trained_T]]


def scaled(found: Batch, scale: float) -> list[list[float]]:
    return [trained(chain) for chain in entropy_scaled(found, scale).chains()]


SIGNED = [[1.0, 2.0, 3.0], [-4.0, -4.0, -4.0]]


def test_a_session_counts_in_proportion_to_its_entropy() -> None:
    """Means 1 and 3, of the batch 2."""
    given = batch([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]], SIGNED)
    assert scaled(given, 1.0) == [[0.5, 1.0, 1.5], [-6.0, -6.0, -6.0]]


def test_a_smaller_scale_goes_part_of_the_way() -> None:
    given = batch([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]], SIGNED)
    assert scaled(given, 0.5) == [[0.75, 1.5, 2.25], [-5.0, -5.0, -5.0]]


@pytest.mark.parametrize("entropy", [0.0, 0.7])
def test_equal_entropies_change_nothing(entropy: float) -> None:
    assert scaled(batch([[entropy] * 3, [entropy] * 3], SIGNED), 1.0) == SIGNED


def test_all_chains_of_a_session_have_one_factor() -> None:
    given = batch([[0.0] * 3, [2.0] * 3, [4.0] * 3], [[1.0] * 3] * 3)
    (prepared,) = given.groups
    one, two, other = prepared.chains
    joined = (one, replace(two, session_id=one.session_id), other)
    given = Batch(0, (replace(prepared, chains=joined),))
    assert scaled(given, 1.0) == [[0.5] * 3, [0.5] * 3, [2.0] * 3]


def test_the_mean_is_over_tokens_not_over_sessions() -> None:
    """A session of three tokens at 1 and one of a single token at 5: the mean is 2."""
    given = batch([[1.0] * 3, [5.0] * 3], [[1.0] * 3] * 2)
    (prepared,) = given.groups
    one, other = prepared.chains
    trained_T = other.tokens.trained_T.copy()
    trained_T[np.flatnonzero(trained_T)[1:]] = False
    tokens = replace(other.tokens, trained_T=trained_T)
    short = replace(other, tokens=tokens, columns={Column.ENTROPY: np.array([5.0], np.float32)})
    given = Batch(0, (replace(prepared, chains=(one, short)),))
    assert scaled(given, 1.0) == [[0.5] * 3, [2.5]]


def test_a_batch_without_a_trained_token_stays_as_it_is() -> None:
    empty = Batch(0, ())
    assert entropy_scaled(empty, 1.0) == empty
