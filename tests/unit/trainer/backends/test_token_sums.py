"""Sums over the tokens of a step: quantiles of the ratios, however the tokens are divided."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from seamlessflow.trainer.backends.losses.tokens import Losses
from seamlessflow.trainer.backends.token_sums import RATIO_WIDTH, TokenSums


def sums(log_ratios: Sequence[float]) -> TokenSums:
    totals = TokenSums()
    add(totals, torch.tensor(log_ratios))
    return totals


def add(to: TokenSums, log_ratios_N: Tensor) -> None:
    zeros_N = torch.zeros_like(log_ratios_N)
    to.add_losses(Losses(zeros_N, zeros_N), zeros_N, log_ratios_N, zeros_N)


def p99(totals: TokenSums) -> float:
    return totals.metrics()["ratio_p99"]


def test_equal_policies_have_the_ratio_1() -> None:
    assert p99(sums([1e-7, -1e-7, 0.0])) == 1.0


def test_a_step_without_a_trained_token_has_no_mean_over_tokens() -> None:
    """A share of 0 would be told as a symptom: all tokens lost to unequal ratios."""
    assert TokenSums().metrics() == {"loss": 0, "mismatch_tokens": 0}


def test_how_far_a_policy_is_from_another_has_no_bound() -> None:
    assert sums([-60.0, 0.0]).metrics()["policy_kl"] == pytest.approx(59 / 2)
    assert math.isfinite(sums([900.0]).metrics()["policy_kl"])


def test_one_token_in_a_hundred_may_be_farther() -> None:
    assert p99(sums([0.0] * 99 + [2.0])) == 1.0
    assert p99(sums([0.0] * 98 + [2.0] * 2)) == pytest.approx(math.e**2)


def test_a_quantile_is_that_of_all_tokens_within_half_a_bin() -> None:
    drawn_N = np.random.default_rng(0).normal(0, 0.3, 5_000)
    exact = np.quantile(drawn_N, 0.99, method="inverted_cdf")
    quantile = math.log(p99(sums(drawn_N.tolist())))
    assert abs(quantile - exact) <= RATIO_WIDTH / 2 + 1e-6


def test_ratios_beyond_the_bins_are_told_as_the_last_one() -> None:
    assert p99(sums([50.0])) == p99(sums([math.nan])) == pytest.approx(math.e**3)
    assert p99(sums([-50.0])) == pytest.approx(math.e**-3)


def test_ranks_and_micro_batches_change_nothing() -> None:
    drawn_N = torch.from_numpy(np.random.default_rng(1).normal(0, 1, 999))
    parts = [TokenSums(), TokenSums()]
    for place in range(10):
        add(parts[place % 2], drawn_N[100 * place : 100 * (place + 1)])
    ratios = torch.from_numpy(parts[1].ratios).double()

    def with_other(vector: Tensor) -> Tensor:
        return vector + (ratios if len(vector) == len(ratios) else _sums(parts[1], vector))

    merged = parts[0].merged(with_other, lambda vector: vector)
    assert merged.metrics()["ratio_p99"] == p99(sums(drawn_N.tolist()))
    assert int(merged.ratios.sum()) == 999


def _sums(totals: TokenSums, like: Tensor) -> Tensor:
    values = list(totals.merged(lambda vector: vector, lambda vector: vector).sums.values())
    return torch.tensor(values, dtype=like.dtype)
