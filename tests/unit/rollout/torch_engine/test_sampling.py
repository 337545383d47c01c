"""The draw: its distribution, its filters, its independence of the batch."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from seamlessflow.producers.rollout.torch_engine.sampling import SamplingBatch, sample, uniforms

DRAWS = 20_000
# 99.9 % quantiles of chi-square for these degrees of freedom.
CHI_SQUARE = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 9: 27.88}


def batch(
    size: int, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0, seed: int = 5
) -> SamplingBatch:
    return SamplingBatch(
        temperature_B=np.full(size, temperature, np.float32),
        top_p_B=np.full(size, top_p, np.float64),
        top_k_B=np.full(size, top_k, np.int64),
        seed_B=np.full(size, seed, np.uint64),
        offset_B=np.arange(size),
    )


def logits(size: int, vocabulary: int, seed: int = 0) -> Tensor:
    """The same random row, `size` times."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, vocabulary, generator=generator).expand(size, vocabulary)


def counts(tokens_B: Tensor, vocabulary: int) -> npt.NDArray[np.int64]:
    return np.bincount(tokens_B.numpy(), minlength=vocabulary)


def assert_follows(drawn: npt.NDArray[np.int64], expected: npt.NDArray[np.float64]) -> None:
    """Chi-square of the counts against probabilities; where those are 0 nothing was drawn."""
    possible = expected > 0
    assert drawn[~possible].sum() == 0
    wanted = expected[possible] * drawn.sum()
    statistic = float(((drawn[possible] - wanted) ** 2 / wanted).sum())
    assert statistic < CHI_SQUARE[int(possible.sum()) - 1]


@pytest.mark.parametrize("temperature", [1.0, 0.5, 1.7])
def test_draws_follow_the_distribution_at_a_temperature(temperature: float) -> None:
    logits_BV = logits(DRAWS, 10)
    tokens_B, logprobs_B = sample(logits_BV, batch(DRAWS, temperature))
    expected = torch.softmax(logits_BV[0].double() / temperature, dim=-1).numpy()
    assert_follows(counts(tokens_B, 10), expected)
    torch.testing.assert_close(logprobs_B, torch.from_numpy(expected).log().float()[tokens_B])


def test_top_k_keeps_the_k_likeliest_in_proportion() -> None:
    logits_BV = logits(DRAWS, 10)
    tokens_B, _ = sample(logits_BV, batch(DRAWS, top_k=3))
    probabilities = torch.softmax(logits_BV[0].double(), dim=-1)
    kept = torch.zeros(10, dtype=torch.float64)
    best = probabilities.topk(3).indices
    kept[best] = probabilities[best]
    assert_follows(counts(tokens_B, 10), (kept / kept.sum()).numpy())


def test_top_p_keeps_the_smallest_set_that_holds_p() -> None:
    probabilities = torch.tensor([0.1, 0.4, 0.05, 0.3, 0.15], dtype=torch.float64)
    logits_BV = probabilities.log().float().expand(DRAWS, 5)
    tokens_B, _ = sample(logits_BV, batch(DRAWS, top_p=0.8))
    assert_follows(counts(tokens_B, 5), np.array([0, 0.4, 0, 0.3, 0.15]) / 0.85)


def test_top_p_counts_in_what_top_k_left() -> None:
    probabilities = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    logits_BV = probabilities.log().float().expand(DRAWS, 4)
    tokens_B, _ = sample(logits_BV, batch(DRAWS, top_p=0.6, top_k=3))
    assert_follows(counts(tokens_B, 4), np.array([4, 3, 0, 0]) / 7)


@pytest.mark.parametrize("bent", [{"top_k": 1}, {"top_p": 1e-9}, {"temperature": 0.0}])
def test_the_narrowest_settings_are_greedy(bent: dict[str, Any]) -> None:
    tokens_B, _ = sample(logits(50, 100), batch(50, **bent))
    assert set(tokens_B.tolist()) == {int(logits(1, 100).argmax())}


def test_a_tiny_temperature_is_greedy_and_finite() -> None:
    tokens_B, logprobs_B = sample(logits(50, 100), batch(50, temperature=1e-30))
    assert set(tokens_B.tolist()) == {int(logits(1, 100).argmax())}
    assert torch.isfinite(logprobs_B).all()


def test_a_row_draws_the_same_whatever_stands_beside_it() -> None:
    logits_BV = torch.cat([logits(1, 100, seed) for seed in range(6)])
    mixed = SamplingBatch(
        temperature_B=np.array([1, 1, 0, 0.5, 1, 1], np.float32),
        top_p_B=np.array([1, 1, 1, 0.9, 0.5, 1], np.float64),
        top_k_B=np.array([0, 5, 0, 0, 0, 0], np.int64),
        seed_B=np.arange(6, dtype=np.uint64),
        offset_B=np.array([4, 0, 2, 9, 1, 7]),
    )
    together, logprobs_B = sample(logits_BV, mixed)
    for row in range(6):
        part = slice(row, row + 1)
        alone = SamplingBatch(
            mixed.temperature_B[part],
            mixed.top_p_B[part],
            mixed.top_k_B[part],
            mixed.seed_B[part],
            mixed.offset_B[part],
        )
        token, logprob = sample(logits_BV[part], alone)
        assert (token.item(), logprob.item()) == (together[row].item(), logprobs_B[row].item())


def test_uniforms_are_uniform_and_neither_seeds_nor_offsets_are_correlated() -> None:
    offsets = np.arange(DRAWS)
    streams = np.stack([uniforms(np.full(DRAWS, s, np.uint64), offsets) for s in range(4)])
    assert streams.min() >= 0
    assert streams.max() < 1
    for stream in streams:
        assert_follows(np.bincount((stream * 10).astype(int), minlength=10), np.full(10, 0.1))
    assert np.abs(np.corrcoef(streams) - np.eye(4)).max() < 0.03
    assert abs(np.corrcoef(streams[0][:-1], streams[0][1:])[0, 1]) < 0.03


def test_the_largest_uniform_still_picks_a_token_that_is_possible() -> None:
    weights = torch.tensor([[0.5, 0.5, -torch.inf, -torch.inf]]).log().nan_to_num(nan=-torch.inf)
    tokens_B, _ = sample(weights.expand(DRAWS, 4), batch(DRAWS))
    assert set(tokens_B.tolist()) == {0, 1}
