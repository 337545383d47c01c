"""An advantage of your own: the return above a quantile of the group's returns.

With quantile 0.5 a few lucky sessions do not move the baseline, as they move a mean.
"""

import numpy as np


def above_quantile(episodes, rules, *, quantile=0.5):
    """Return for each session an array: the advantage of each of its trained tokens."""
    returns = np.array([episode.reward for episode in episodes])
    advantages = returns - np.quantile(returns, quantile)
    return [
        np.full(len(episode), value) for episode, value in zip(episodes, advantages, strict=True)
    ]
