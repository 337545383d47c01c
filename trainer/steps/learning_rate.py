"""The learning rate of each optimizer step. Pure."""

import math

from seamlessflow.trainer.settings import OptimizerSection


def learning_rate(settings: OptimizerSection, step: int, steps: int) -> float:
    """Return the rate of `step` (from 0) of `steps`.

    A linear warm-up to `lr`, then the schedule down to `min_lr`, which it reaches behind the last
    step: at a rate of 0 the sessions of that step would teach nothing.
    """
    if step < settings.warmup_steps:
        return settings.lr * (step + 1) / settings.warmup_steps
    left = max(steps - settings.warmup_steps, 1)
    done = min((step - settings.warmup_steps) / left, 1.0)
    match settings.schedule:
        case "constant":
            return settings.lr
        case "linear":
            share = 1 - done
        case "cosine":
            share = (1 + math.cos(math.pi * done)) / 2
    return settings.min_lr + (settings.lr - settings.min_lr) * share
