"""Figures that a batch has before it is trained: its step's tokens and metrics. Pure.

Called by `steps/`.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

import numpy as np

from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.advantages import EQUAL
from seamlessflow.trainer.data.batch import Batch, Prepared
from seamlessflow.trainer.data.chains import ELSEWHERE
from seamlessflow.trainer.data.credit.overlong import overlong_facts
from seamlessflow.trainer.data.credit.returns import RewardWeights
from seamlessflow.trainer.data.figures.chances import pass_at_k, passed
from seamlessflow.trainer.data.lengths import length_metrics, quantiles
from seamlessflow.trainer.data.methods import METHOD_FAILED
from seamlessflow.trainer.data.sessions import ValidSession, parent_of
from seamlessflow.trainer.data.staleness import StepClock

MOST_SHOWN = 16
"""Most reward names, and most sources, that a step shows. Agents choose both, and each gives
several metrics."""
_LONGEST_LABEL = 40


@dataclass(slots=True)
class StepTokens:
    """The sampled tokens in complete groups: trainable ones, and masked ones by reason."""

    trainable: int = 0
    masked: Counter[str] = field(default_factory=Counter)
    over_age: int = 0
    """Tokens among them that are older than `trainer.max_staleness`."""
    failed: int = 0
    """Groups for which a method failed; their tokens count as neither."""
    failure: str = ""
    """The newest such failure."""

    def with_groups(self, groups: Iterable[Prepared]) -> "StepTokens":
        """Return these tokens together with those of `groups`."""
        tokens = replace(self, masked=self.masked.copy())
        for group in groups:
            if group.dropped and group.dropped[0] == METHOD_FAILED:
                tokens.failed = tokens.failed + 1
                tokens.failure = group.dropped[1]
            tokens.trainable += group.trainable
            tokens.masked += group.masked()
            tokens.over_age += group.over_age
        return tokens


def facts(batch: Batch, clock: StepClock, weights: RewardWeights = ONE_REWARD) -> dict[str, float]:
    """Return the metrics that are known before training (names in `trainer/metrics/names.py`).

    `weights`: each named reward's weight in a return.
    """
    # An earlier step's metrics already cover the groups that it trained.
    groups = batch.new_groups
    returns = np.array([value for group in groups for value in group.group.returns()])
    spread = [float(np.std(group.group.returns())) for group in groups]
    sessions = [session for group in groups for session in group.group.sessions]
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
        **_first_prompts(sessions),
        **length_metrics("trained", batch.lengths()),
        **_ages(batch, clock),
        **_foreign(batch),
        **_reused(batch),
        **_stored(batch),
        **_forked(groups),
        **_sampled_again(sessions),
        **variety(groups),
        **reward_figures(sessions, weights),
        **overlong_facts([group.group for group in groups]),
        **{f"pass_at/{k}": chance for k, chance in _passing(batch).items()},
        **_by_source(batch),
    }
    return {name: float(value) for name, value in metrics.items()}


def reward_figures(sessions: Sequence[ValidSession], weights: RewardWeights) -> dict[str, float]:
    """Return each named reward's mean and quantiles, each source's part, the returns' quantiles.

    A reward's figures are over the sessions that have it. A source's part is what its weighted
    rewards add to the mean return over all sessions. The parts of all sources sum to `reward_mean`.
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


def variety(groups: Sequence[Prepared]) -> dict[str, float]:
    """Return the shares of equal and divided sessions, and the largest shares of trained tokens.

    Equal sessions in a group have the same trained tokens; a divided session has chains that fork.
    One largest share is a group's, the other a task's over all its groups.
    """
    by_group = [[session for session in group.group.sessions if session.chains] for group in groups]
    sessions = sum(map(len, by_group))
    if not sessions:
        return {}
    trained = [sum(chain.trained() for chain in group.chains) for group in groups]
    of_tasks = Counter[str]()
    for group, tokens in zip(groups, trained, strict=True):
        of_tasks[_task(group)] += tokens
    total = max(1, sum(trained))
    return {
        "equal_share": sum(map(_equal, by_group)) / sessions,
        "divided_share": sum(session.divided for members in by_group for session in members)
        / sessions,
        "largest_group_share": max(trained) / total,
        "tasks": sum(tokens > 0 for tokens in of_tasks.values()),
        "largest_task_share": max(of_tasks.values()) / total,
    }


def _first_prompts(sessions: Sequence[ValidSession]) -> dict[str, float]:
    """Return quantiles over the token counts in the sessions' first prompts."""
    tokens = quantiles(session.source.first_prompt_tokens for session in sessions)
    return {f"prompt_tokens/{name}": value for name, value in tokens.items()}


def _sampled_again(sessions: Sequence[ValidSession]) -> dict[str, float]:
    """Return how many sessions sample an explored one again, and the share with equal tokens."""
    texts = [
        (session.source.text, session.source.seed_session.text)
        for session in sessions
        if session.source.seed_session is not None
    ]
    if not texts:
        return {}
    same = sum(second == first for second, first in texts)
    return {"sampled_again": len(texts), "equal_texts": same / len(texts)}


def _passing(batch: Batch) -> dict[int, float]:
    returns = [group.group.returns() for group in batch.new_groups]
    return pass_at_k([(len(values), passed(values)) for values in returns])


def _by_source(batch: Batch) -> dict[str, float]:
    """Return each task set's groups and mean return in the batch."""
    metrics = dict[str, float]()
    rewards = dict[str, list[float]]()
    for group in batch.new_groups:
        split = group.group.sessions[0].source.split
        if split:
            rewards.setdefault(split, []).extend(group.group.returns())
            metrics[f"groups_from/{split}"] = metrics.get(f"groups_from/{split}", 0) + 1
    return metrics | {f"reward_from/{split}": fmean(values) for split, values in rewards.items()}


def _foreign(batch: Batch) -> dict[str, float]:
    """Return the share of trained tokens in sessions with foreign tokens; empty if none."""
    count = sum(batch.foreign_tokens().values())
    return {"foreign_share": count / batch.trained()} if count else {}


def _reused(batch: Batch) -> dict[str, float]:
    """Return figures on groups that earlier steps trained; empty if there are none."""
    again = batch.reused
    if not again:
        return {}
    tokens = sum(chain.trained() for group in again for chain in group.chains)
    return {
        "reused_groups": len(again),
        "reused_share": tokens / batch.trained(),
        "reused_most": max(group.reused for group in again),
    }


def _stored(batch: Batch) -> dict[str, float]:
    """Return figures on stored sessions; empty if the batch has none."""
    if not batch.stored:
        return {}
    names = {session.source.session_id for session in batch.stored}
    chains = [chain for chain in batch.chains() if chain.session_id in names]
    unscored = sum(
        int(np.isnan(chain.tokens.logprobs_T[chain.tokens.trained_T]).sum()) for chain in chains
    )
    trained = max(1, batch.trained())
    return {
        "stored_groups": sum(bool(group.pool) for group in batch.groups),
        "stored_replaced": sum(len(group.group.stored) for group in batch.groups),
        "stored_share": sum(chain.trained() for chain in chains) / trained,
        "unscored_share": unscored / trained,
    }


def _forked(groups: Sequence[Prepared]) -> dict[str, float]:
    """Return figures on groups that go on from ended sessions; empty without any."""
    parents = [(group.group, parent_of(group.group.sessions)) for group in groups]
    forked = [(group.returns(), parent.reward) for group, parent in parents if parent is not None]
    if not forked:
        return {}
    other = [any(abs(each - before) > EQUAL for each in returns) for returns, before in forked]
    return {"forked_groups": len(forked), "forked_other_share": fmean(other)}


def _ages(batch: Batch, clock: StepClock) -> dict[str, float]:
    ages = [
        clock.ages_T(versions_N[versions_N != ELSEWHERE])
        for chain in batch.chains()
        for versions_N in (chain.tokens.versions_T[chain.tokens.trained_T],)
    ]
    joined = np.concatenate(ages) if ages else np.zeros(0)
    if not len(joined):
        joined = np.zeros(1)
    return {
        "staleness_mean": joined.mean(),
        "staleness_max": joined.max(),
        "older_share": np.mean(joined > 0),
    }


def _of_sources(sessions: Sequence[ValidSession], weights: RewardWeights) -> dict[str, float]:
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
    """Return a name without the characters at which files and sinks divide a metric's name."""
    return re.sub(r"[^\w.:-]+", "_", name)[:_LONGEST_LABEL]


def _task(group: Prepared) -> str:
    """Return a group's task id, or the group's own id if its sessions name no task."""
    names = (session.source.task_id for session in group.group.sessions)
    return next(filter(None, names), group.group.group_id)


def _equal(sessions: Sequence[ValidSession]) -> int:
    """Return how many sessions in a group have the same trained tokens as another one."""
    counts = Counter(map(_sampled, sessions))
    return sum(count for count in counts.values() if count > 1)


def _sampled(session: ValidSession) -> bytes:
    """Return a session's trained tokens as bytes."""
    return b"".join(
        chain.tokens.ids_T[chain.tokens.trained_T].tobytes() for chain in session.chains
    )
