"""One GRPO step, as plain as can be: a loop over sessions without forks, by transformers alone.

It shares no code with the trainer, whose steps are compared with it.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from seamlessflow.schemas.records import Trajectory

LOW, HIGH, DUAL = 0.8, 1.28, 3.0
"""Bounds of a ratio, and of one with a negative advantage."""
EPSILON = 1e-6


def plain_grpo(
    model: PreTrainedModel, groups: Sequence[Sequence[Trajectory]]
) -> tuple[float, dict[str, Tensor]]:
    """Return the loss of a step, a mean over trained tokens, and its gradient by parameter."""
    count = sum(sum(session.loss_mask) for group in groups for session in group)
    loss = 0.0
    for group in groups:
        rewards = np.array([session.rewards[0].value for session in group])
        advantages = (rewards - rewards.mean()) / (rewards.std() + EPSILON)
        for session, advantage in zip(group, advantages.tolist(), strict=True):
            part = _summed(model, session, advantage) / count
            torch.autograd.backward(part)
            loss += float(part.detach())
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    model.zero_grad(set_to_none=True)
    return loss, gradients


def _summed(model: PreTrainedModel, session: Trajectory, advantage: float) -> Tensor:
    """Return the sum of PPO's clipped loss over the trained tokens of a session."""
    ids = torch.tensor(np.frombuffer(session.tokens, "<i4").astype(np.int64))
    trained = torch.tensor(np.frombuffer(session.loss_mask, np.uint8).astype(bool))[1:]
    sampled = torch.tensor(np.frombuffer(session.logprobs, "<f4").copy())[1:]
    table = model(input_ids=ids[None], use_cache=False).logits[0, :-1].log_softmax(-1)
    ratios = (table.gather(-1, ids[1:, None])[:, 0] - sampled)[trained].exp()
    kept = torch.minimum(ratios * advantage, ratios.clamp(LOW, HIGH) * advantage)
    if advantage < 0:
        kept = kept.clamp(min=DUAL * advantage)
    return -kept.sum()
