"""Advantage estimators that see a whole batch, and the columns that devices computed for it.

They are the second phase of a step, between `Backend.annotate` and the loss. Registered by name
(`BATCH_ESTIMATORS`, the setting `trainer.advantage`); `phase.py` calls them. `_N` counts the
trained tokens of a session.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seamlessflow.schemas.arrays import Float64s
from seamlessflow.trainer.data.advantages import (
    EQUAL,
    ReturnRules,
    clearness,
    decoupled,
    grpo_unscaled,
    spread,
    varied,
)
from seamlessflow.trainer.data.chains import NOWHERE, Column
from seamlessflow.trainer.data.episodes import Episode, accumulated, followers, following

GroupedEpisodes = Sequence[Sequence[Episode]]
"""The sessions of each group of a batch."""


@dataclass(frozen=True, slots=True)
class Credit:
    """The advantage of each trained token of a session, and the critic's target there."""

    advantages_N: Float64s
    targets_N: Float64s | None = None
    """Returns for the critic to learn; NaN where it learns none. None: there is no critic."""


BatchEstimator = Callable[[GroupedEpisodes, ReturnRules], list[list[Credit]]]


def grpo_batch(groups: GroupedEpisodes, rules: ReturnRules) -> list[list[Credit]]:
    """Return (r - mean of the group) / (deviation of the batch's returns + epsilon).

    Group mean and batch deviation, arXiv 2508.08221 (Lite PPO). A group of nearly equal returns
    counts little.
    """
    returns = [np.array([episode.reward for episode in group]) for group in groups]
    joined_S = np.concatenate([np.zeros(0), *returns])
    scale = 1.0 / spread(joined_S, rules) if varied(joined_S) else 0.0
    values = [scale * grpo_unscaled(of_group, rules) for of_group in returns]
    return [_of_sessions(group, of_S) for group, of_S in zip(groups, values, strict=True)]


def gdpo(groups: GroupedEpisodes, rules: ReturnRules) -> list[list[Credit]]:
    """Return the sums of decoupled advantages, normalised over all sessions of the batch.

    Group reward-decoupled normalization, arXiv 2601.05242. Each named reward is normalised in its
    group by itself. So combinations of rewards with the same sum keep different advantages. If all
    rewards differ by noise alone, scaling would make a full signal of it. The sums then stay as
    small as `epsilon` made them.
    """
    values = [decoupled(group, rules) for group in groups]
    joined_S = np.concatenate([np.zeros(0), *values])
    mean = float(joined_S.mean()) if len(joined_S) else 0.0
    clearest = max((clearness(group, rules) for group in groups), default=0.0)
    scale = clearest / spread(joined_S, rules) if varied(joined_S) else 0.0
    return [
        _of_sessions(group, (of_S - mean) * scale)
        for group, of_S in zip(groups, values, strict=True)
    ]


def reinforce_pp(groups: GroupedEpisodes, rules: ReturnRules) -> list[list[Credit]]:
    """Return the discounted return of each token, in standard deviations from the batch's mean.

    REINFORCE++, arXiv 2501.03262: no group is needed.
    """
    returns = [[_returns(episode, rules, episode.reward) for episode in group] for group in groups]
    return _whitened([[Credit(values_N) for values_N in group] for group in returns], rules)


def reinforce_pp_baseline(groups: GroupedEpisodes, rules: ReturnRules) -> list[list[Credit]]:
    """Return the same, with the group's mean return subtracted from each session's return.

    REINFORCE++-baseline, arXiv 2501.03262.
    """
    by_group = []
    for group in groups:
        mean = float(np.mean([episode.reward for episode in group])) if group else 0.0
        by_group.append(
            [Credit(_returns(episode, rules, episode.reward - mean)) for episode in group]
        )
    return _whitened(by_group, rules)


def gae(groups: GroupedEpisodes, rules: ReturnRules) -> list[list[Credit]]:
    """Return generalized advantages over tokens, whitened over the batch, and returns to learn.

    delta_t = r_t + discount V_t+1 - V_t, A_t = delta_t + discount lambda A_t+1 (arXiv 1506.02438,
    equation 16). At a fork the V and A of the next token are means over the branches.
    """
    by_group = []
    for group in groups:
        of_group = []
        for episode in group:
            values_N = episode.column(Column.VALUE)
            previous_N = episode.previous_N
            rewards_N = token_rewards(episode, rules, episode.reward)
            deltas_N = rewards_N + rules.token_discount * following(previous_N, values_N) - values_N
            factor = rules.token_discount * rules.trace
            advantages_N = accumulated(previous_N, deltas_N, factor)
            of_group.append(Credit(advantages_N, advantages_N + values_N))
        by_group.append(of_group)
    return _whitened(by_group, rules)


def turn_gae(groups: GroupedEpisodes, rules: ReturnRules) -> list[list[Credit]]:
    """Return generalized advantages over turns: all tokens of a turn have the turn's advantage.

    As `gae`, with turns instead of tokens. V_k is the value before the first trained token of turn
    k; the critic learns only there.
    """
    return _whitened(
        [[_turn_credit(episode, rules) for episode in group] for group in groups], rules
    )


def distill(groups: GroupedEpisodes, rules: ReturnRules) -> list[list[Credit]]:
    """Return the log-prob of each token under the teacher, minus that of the policy before the
    step.

    On-policy distillation: the reverse KL divergence, token by token (arXiv 2306.13649).
    """

    def gains_N(episode: Episode) -> Float64s:
        return episode.column(Column.TEACHER) - episode.column(Column.PROXIMAL)

    return [[Credit(gains_N(episode)) for episode in group] for group in groups]


def token_rewards(episode: Episode, rules: ReturnRules, outcome: float) -> Float64s:
    """Return the reward of each token.

    The last token of a branch has `outcome`, the last token of a turn the turn's reward. Each token
    also has -`kl_penalty` x (log-prob before the step - the reference's log-prob).
    """
    previous_N = episode.previous_N
    turns_N = episode.turns_N
    found_N = np.where(followers(previous_N) == 0, outcome, 0.0)
    goes_on_N = np.zeros(len(turns_N), bool)
    later_N = (previous_N != NOWHERE) & (turns_N == turns_N[previous_N])
    goes_on_N[previous_N[later_N]] = True
    found_N += np.where(goes_on_N, 0.0, episode.turn_rewards_K[turns_N])
    if rules.kl_penalty:
        policy_N = episode.column(Column.PROXIMAL)
        found_N -= rules.kl_penalty * (policy_N - episode.column(Column.REFERENCE))
    return found_N


def _of_sessions(group: Sequence[Episode], values_S: Float64s) -> list[Credit]:
    """Return the credit of sessions with one advantage for all tokens of a session."""
    pairs = zip(group, values_S.tolist(), strict=True)
    return [Credit(np.full(len(episode), value)) for episode, value in pairs]


def _returns(episode: Episode, rules: ReturnRules, outcome: float) -> Float64s:
    rewards_N = token_rewards(episode, rules, outcome)
    return accumulated(episode.previous_N, rewards_N, rules.token_discount)


def _turn_credit(episode: Episode, rules: ReturnRules) -> Credit:
    if not len(episode):
        return Credit(np.zeros(0), np.zeros(0))
    turns_N = episode.turns_N
    turns, first, place_N = np.unique(turns_N, return_index=True, return_inverse=True)
    # Turns in the order of their first tokens: what follows a turn comes behind it.
    order = np.argsort(first, kind="stable")
    rank = np.argsort(order, kind="stable")
    before = episode.previous_N[first[order]]
    previous_K = np.where(before == NOWHERE, NOWHERE, rank[place_N[before]])
    # The end of a completion that another turn leaves earlier is no end of the session's turns.
    outcome_K = np.where(followers(previous_K) == 0, episode.reward, 0.0)
    rewards_K = outcome_K + np.bincount(
        rank[place_N], weights=token_rewards(episode, rules, 0.0), minlength=len(turns)
    )
    values_K = episode.column(Column.VALUE)[first[order]]
    deltas_K = rewards_K + rules.discount * following(previous_K, values_K) - values_K
    advantages_K = accumulated(previous_K, deltas_K, rules.discount * rules.trace)
    targets_N = np.full(len(turns_N), np.nan)
    targets_N[first[order]] = advantages_K + values_K
    return Credit(advantages_K[rank[place_N]], targets_N)


def _whitened(groups: list[list[Credit]], rules: ReturnRules) -> list[list[Credit]]:
    """Return advantages in standard deviations from the mean over all tokens of the batch."""
    joined_N = np.concatenate([np.zeros(0), *(c.advantages_N for group in groups for c in group)])
    if not len(joined_N):
        return groups
    mean = float(joined_N.mean())
    scale = 1.0 / spread(joined_N, rules) if float(joined_N.std()) > EQUAL else 0.0
    return [
        [Credit((credit.advantages_N - mean) * scale, credit.targets_N) for credit in group]
        for group in groups
    ]


@dataclass(frozen=True, slots=True)
class BatchEstimation:
    """An estimator with the columns that it needs."""

    estimate: BatchEstimator
    columns: frozenset[Column] = frozenset()


BATCH_ESTIMATORS: Mapping[str, BatchEstimation] = {
    "grpo_batch": BatchEstimation(grpo_batch),
    "gdpo": BatchEstimation(gdpo),
    "reinforce_pp": BatchEstimation(reinforce_pp),
    "reinforce_pp_baseline": BatchEstimation(reinforce_pp_baseline),
    "gae": BatchEstimation(gae, frozenset({Column.VALUE})),
    "turn_gae": BatchEstimation(turn_gae, frozenset({Column.VALUE})),
    "distill": BatchEstimation(distill, frozenset({Column.TEACHER, Column.PROXIMAL})),
}
