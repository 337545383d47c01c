"""Rewards of a batch's sessions: of each name, of each source, and the spread of returns. Pure."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from seamlessflow.trainer.data.credit.returns import Weights
from seamlessflow.trainer.data.lengths import quantiles
from seamlessflow.trainer.data.sessions import ValidSession

MOST_SHOWN = 16
"""Most names and sources of a step: agents choose them, and each is several metrics."""

_LONGEST_LABEL = 40


def reward_figures(sessions: Sequence[ValidSession], weights: Weights) -> dict[str, float]:
    """Return mean and quantiles of each named reward, parts of sources, and the spread of returns.

    A reward's are over the sessions that have it; a source's is the mean over all sessions of what
    its rewards add to the return by their weights, so that all of them add up to `reward_mean`.
    """
    counts = Counter(name for session in sessions for name in session.rewards)
    others = (name for name, _ in counts.most_common() if name not in weights)
    figures: dict[str, float] = {}
    for name in [*(name for name in weights if counts[name]), *others][:MOST_SHOWN]:
        of_reward = quantiles(
            session.rewards[name].value for session in sessions if name in session.rewards
        )
        label = f"reward/{_label(name)}"
        figures[label] = of_reward.pop("mean")
        figures |= {f"{label}/{quantile}": value for quantile, value in of_reward.items()}
    spread = quantiles(session.reward for session in sessions)
    spread.pop("mean", None)
    figures |= {f"return/{quantile}": value for quantile, value in spread.items()}
    return figures | _of_sources(sessions, weights)


def _of_sources(sessions: Sequence[ValidSession], weights: Weights) -> dict[str, float]:
    sums: defaultdict[str, float] = defaultdict(float)
    counts = Counter[str]()
    for session in sessions:
        for reward in session.rewards.values():
            if reward.name in weights:
                sums[reward.source] += weights[reward.name] * reward.value
                counts[reward.source] += 1
    shown = [source for source, _ in counts.most_common(MOST_SHOWN)]
    return {f"reward_of/{_label(name)}": sums[name] / len(sessions) for name in shown}


def _label(name: str) -> str:
    """Return a name as a part of a metric's, which files and sinks divide by other characters."""
    return re.sub(r"[^\w.:-]+", "_", name)[:_LONGEST_LABEL]
