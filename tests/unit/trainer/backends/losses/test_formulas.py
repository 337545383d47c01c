"""Every surrogate with every correction: values and gradients against formulas in plain numbers.

The formulas know no tensors and no autograd: the derivative of each case is written out by hand, so
a gradient that is stopped in the wrong place, or not stopped, shows although values are right.
"""

from collections import defaultdict
from dataclasses import dataclass
from math import exp

import numpy as np
import pytest
import torch

from tests.builders.trainer.losses import combinations, loss_tokens, named
from tests.seed import seed
from trainer.backends.losses.loss import token_losses
from trainer.loss import LossSection

TOKENS = 60


@dataclass(frozen=True)
class Case:
    """Tokens of five sessions with two turns each, in any order."""

    logprobs: list[float]
    engine: list[float]
    advantages: list[float]
    turns: list[int]


def case() -> Case:
    random = np.random.default_rng(seed)
    return Case(
        random.normal(-2, 0.5, TOKENS).tolist(),
        random.normal(-2, 0.5, TOKENS).tolist(),
        random.normal(0, 1, TOKENS).tolist(),
        random.integers(0, 10, TOKENS).tolist(),
    )


def by_unit(case: Case, level: str) -> list[list[float]]:
    """Of each token the log ratios of all tokens of its unit."""
    of = [turn if level == "turn" else turn // 2 for turn in case.turns]
    found = defaultdict(list)
    for unit, own, engine in zip(of, case.logprobs, case.engine, strict=True):
        found[unit].append(own - engine)
    return [found[unit] for unit in of]


def weight(case: Case, place: int, settings: LossSection) -> tuple[float, bool]:
    """The correction's weight, and whether it is bounded."""
    log_ratio = case.logprobs[place] - case.engine[place]
    match settings.correction:
        case "tis":
            if settings.correction_level != "token":
                log_ratio = sum(by_unit(case, settings.correction_level)[place])
            return min(exp(log_ratio), settings.cap), exp(log_ratio) > settings.cap
        case "icepop":
            inside = 1 / settings.cap <= exp(log_ratio) <= settings.cap
            return exp(log_ratio) if inside else 0.0, not inside
        case _:
            return 1.0, False


def clipped(ratio: float, advantage: float, settings: LossSection) -> tuple[float, float, bool]:
    """Value, derivative by the log-prob, and whether it is clipped."""
    low, high = 1 - settings.clip_low, 1 + settings.clip_high
    if advantage > 0 and ratio > high:
        return -high * advantage, 0.0, True
    if advantage < 0 and ratio < low:
        return -low * advantage, 0.0, True
    if advantage < 0 and settings.dual_clip and ratio > settings.dual_clip:
        return -settings.dual_clip * advantage, 0.0, True
    return -ratio * advantage, -ratio * advantage, False


def unweighted(case: Case, place: int, settings: LossSection) -> tuple[float, float, bool]:
    """Value, derivative and clipping of a surrogate without its correction."""
    logprob, advantage = case.logprobs[place], case.advantages[place]
    log_ratio = logprob - case.engine[place] if settings.correction == "none" else 0.0
    match settings.surrogate:
        case "ppo_clip":
            return clipped(exp(log_ratio), advantage, settings)
        case "gspo":
            log_ratios = by_unit(case, settings.ratio_level or "session")[place]
            mean = sum(log_ratios) / len(log_ratios) if settings.correction == "none" else 0.0
            return clipped(exp(mean), advantage, settings)
        case "cispo":
            cut = min(exp(log_ratio), settings.cap)
            beyond = exp(log_ratio) > settings.cap
            return -cut * advantage * log_ratio, -cut * advantage, beyond
        case "policy_gradient":
            return -advantage, -advantage, False
        case _:
            return -logprob, -1.0, False


@pytest.mark.parametrize("settings", combinations(), ids=named)
def test_values_and_gradients_are_those_of_the_formula(settings: LossSection) -> None:
    made = case()
    logprobs_N = torch.tensor(made.logprobs, dtype=torch.float64, requires_grad=True)
    tokens = loss_tokens(
        logprobs_N,
        torch.tensor(made.engine, dtype=torch.float64),
        torch.tensor(made.advantages, dtype=torch.float64),
        settings,
        made.turns,
        [turn // 2 for turn in made.turns],
    )
    found = token_losses(tokens, settings)
    torch.autograd.backward(found.loss_N.sum())
    weights = [weight(made, place, settings) for place in range(TOKENS)]
    terms = [unweighted(made, place, settings) for place in range(TOKENS)]
    values = [w * value for (w, _), (value, _, _) in zip(weights, terms, strict=True)]
    slopes = [w * slope for (w, _), (_, slope, _) in zip(weights, terms, strict=True)]
    bounded = [one or other for (_, one), (_, _, other) in zip(weights, terms, strict=True)]
    assert found.loss_N.tolist() == pytest.approx(values, abs=1e-12)
    assert logprobs_N.grad is not None
    assert logprobs_N.grad.tolist() == pytest.approx(slopes, abs=1e-12)
    assert found.clipped_N.tolist() == bounded


@pytest.mark.parametrize("settings", combinations(), ids=named)
def test_no_ratio_is_too_large_to_be_finite(settings: LossSection) -> None:
    logprobs_N = torch.tensor([-1.0, -201.0, -1.0], requires_grad=True)
    engine_N, advantages_N = torch.tensor([-201.0, -1.0, -1.0]), torch.tensor([-1.0, 1.0, 0.0])
    tokens = loss_tokens(logprobs_N, engine_N, advantages_N, settings, [0, 1, 1], [0, 1, 1])
    found = token_losses(tokens, settings).loss_N
    torch.autograd.backward(found.sum())
    assert logprobs_N.grad is not None
    assert found.isfinite().all() and logprobs_N.grad.isfinite().all()


@pytest.mark.parametrize("settings", combinations(), ids=named)
def test_a_rank_without_a_token_has_a_loss_of_nothing(settings: LossSection) -> None:
    none = torch.zeros(0, requires_grad=True)
    found = token_losses(loss_tokens(none, none.detach(), none.detach(), settings), settings)
    assert found.loss_N.shape == found.clipped_N.shape == (0,)
