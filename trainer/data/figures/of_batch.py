"""Figures of a batch that are known before it is trained: metrics of its step. Pure.

Called by `steps/sequence.py`.
"""

from collections import Counter
from statistics import fmean

import numpy as np

from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.credit.overlong import overlong_facts
from seamlessflow.trainer.data.credit.returns import Weights
from seamlessflow.trainer.data.figures.passing import pass_at_k, passed
from seamlessflow.trainer.data.figures.rewards import reward_figures
from seamlessflow.trainer.data.figures.variety import variety
from seamlessflow.trainer.data.lengths import length_metrics
from seamlessflow.trainer.data.staleness import StepClock


def facts(batch: Batch, clock: StepClock, weights: Weights = ONE_REWARD) -> dict[str, float]:
    """Return the metrics that are known before training (names in `trainer/metrics/names.py`).

    `weights`: of the named rewards that add up to a return.
    """
    # Those that earlier steps trained were told of then.
    groups = batch.own
    returns = np.array([value for group in groups for value in group.group.returns()])
    spread = [float(np.std(group.group.returns())) for group in groups]
    masked = sum((group.masked() for group in groups), Counter[str]())
    filtered = Counter(group.filtered for group in groups if group.filtered)
    metrics = {
        "groups": len(groups),
        "sessions": len(returns),
        "reward_mean": float(returns.mean()) if len(returns) else 0.0,
        "reward_std": float(np.mean(spread)) if spread else 0.0,
        "tokens_trained": batch.trained(),
        "tokens_masked": sum(masked.values()),
        "tokens_over_age": sum(group.over_age for group in groups),
        "tokens_stale_longest": max((group.longest_stale for group in groups), default=0),
        **{f"filtered/{name}": n / len(groups) for name, n in filtered.items()},
        **{f"masked/{reason}": count for reason, count in sorted(masked.items())},
        **length_metrics("trained", batch.lengths()),
        **_ages(batch, clock),
        **_foreign(batch),
        **_reused(batch),
        **variety(groups),
        **reward_figures(
            [session for group in groups for session in group.group.sessions], weights
        ),
        **overlong_facts([group.group for group in groups]),
        **{f"pass_at/{k}": chance for k, chance in _passing(batch).items()},
        **_by_source(batch),
    }
    return {name: float(value) for name, value in metrics.items()}


def _passing(batch: Batch) -> dict[int, float]:
    returns = [group.group.returns() for group in batch.own]
    return pass_at_k([(len(values), passed(values)) for values in returns])


def _by_source(batch: Batch) -> dict[str, float]:
    """Return groups and mean reward of each task set that the batch's tasks are of."""
    metrics, rewards = dict[str, float](), dict[str, list[float]]()
    for group in batch.own:
        split = group.group.sessions[0].source.split
        if split:
            rewards.setdefault(split, []).extend(group.group.returns())
            metrics[f"groups_from/{split}"] = metrics.get(f"groups_from/{split}", 0) + 1
    return metrics | {f"reward_from/{split}": fmean(values) for split, values in rewards.items()}


def _foreign(batch: Batch) -> dict[str, float]:
    """Return the share of foreign tokens; nothing where all are sampled here."""
    count = sum(batch.foreign_tokens().values())
    return {"foreign_share": count / batch.trained()} if count else {}


def _reused(batch: Batch) -> dict[str, float]:
    """Return how much of the batch earlier steps trained; nothing if it is new."""
    again = batch.reused
    if not again:
        return {}
    tokens = sum(chain.trained() for group in again for chain in group.chains)
    return {
        "reused_groups": len(again),
        "reused_share": tokens / batch.trained(),
        "reused_most": max(group.reused for group in again),
    }


def _ages(batch: Batch, clock: StepClock) -> dict[str, float]:
    ages = [
        clock.ages_T(chain.tokens.versions_T[chain.tokens.trained_T]) for chain in batch.chains()
    ]
    joined = np.concatenate(ages) if ages else np.zeros(1)
    return {
        "staleness_mean": joined.mean(),
        "staleness_max": joined.max(),
        "older_share": np.mean(joined > 0),
    }
