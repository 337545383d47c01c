"""Losses against their formulas, token by token."""

import math

import pytest
import torch

from trainer.backends.losses import LOSSES, icepop, ppo_clip, tis
from trainer.settings import LossSection

SETTINGS = LossSection()


def value(ratio: float, advantage: float) -> tuple[float, float, bool]:
    """Loss, gradient to the log-prob, and whether it was clipped."""
    log_ratios_N = torch.tensor([math.log(ratio)], requires_grad=True)
    losses = ppo_clip(log_ratios_N, torch.tensor([advantage]), SETTINGS)
    torch.autograd.backward(losses.loss_N.sum())
    assert log_ratios_N.grad is not None
    return losses.loss_N.item(), log_ratios_N.grad.item(), bool(losses.clipped_N)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.0, 2.0, -2.0, False),
        (1.2, 2.0, -2.4, False),
        (1.5, 2.0, -2.56, True),
        (0.5, 2.0, -1.0, False),
        (0.9, -2.0, 1.8, False),
        (0.5, -2.0, 1.6, True),
        (1.5, -2.0, 3.0, False),
    ],
)
def test_ppo_clips_where_the_step_would_go_too_far(
    ratio: float, advantage: float, loss: float, clipped: bool
) -> None:
    found, gradient, was_clipped = value(ratio, advantage)
    assert found == pytest.approx(loss)
    assert was_clipped == clipped
    assert gradient == pytest.approx(0 if clipped else -ratio * advantage)


def test_truncated_importance_sampling_weighs_and_never_stops() -> None:
    log_ratios_N = torch.tensor([0.0, math.log(8.0)], requires_grad=True)
    losses = tis(log_ratios_N, torch.tensor([1.0, 1.0]), SETTINGS)
    torch.autograd.backward(losses.loss_N.sum())
    assert log_ratios_N.grad is not None
    assert log_ratios_N.grad.tolist() == pytest.approx([-1.0, -SETTINGS.cap])
    assert losses.clipped_N.tolist() == [False, True]


def test_icepop_leaves_out_tokens_whose_ratio_is_far_from_one() -> None:
    log_ratios_N = torch.tensor([0.1, math.log(8.0), -math.log(8.0)], requires_grad=True)
    losses = icepop(log_ratios_N, torch.ones(3), SETTINGS)
    torch.autograd.backward(losses.loss_N.sum())
    assert log_ratios_N.grad is not None
    assert log_ratios_N.grad[1:].tolist() == [0.0, 0.0]
    assert losses.clipped_N.tolist() == [False, True, True]


@pytest.mark.parametrize("name", LOSSES)
def test_no_ratio_is_too_large_to_be_finite(name: str) -> None:
    log_ratios_N = torch.tensor([200.0, -200.0], requires_grad=True)
    torch.autograd.backward(
        LOSSES[name](log_ratios_N, torch.tensor([-1.0, 1.0]), SETTINGS).loss_N.sum()
    )
    assert log_ratios_N.grad is not None and log_ratios_N.grad.isfinite().all()
