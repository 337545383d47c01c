"""Advantage estimators that see a whole batch, and the columns that devices computed for it.

They are a step's second phase, between `Backend.annotate` and the loss. Registered by name
(`BATCH_ESTIMATORS`, the setting `trainer.advantage`); `phase.py` calls them. `_N` counts a
session's trained tokens, `_K` its turns.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from seamlessflow.schemas.arrays import Bools, Float64s, Int64s
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
from seamlessflow.trainer.data.credit.values import OUTPUTS, value_columns
from seamlessflow.trainer.data.episodes import Episode, accumulated, followers, following

GroupedEpisodes = Sequence[Sequence[Episode]]
"""Each group's sessions in a batch."""


@dataclass(frozen=True, slots=True)
class Credit:
    """Advantages for a session's trained tokens, and the critic's targets there."""

    advantages_N: Float64s
    targets: Mapping[Column, Float64s] = field(default_factory=dict)
    """Numbers (N) for the critic to learn, by the value's column; NaN where it learns none."""


BatchEstimator = Callable[[GroupedEpisodes, ReturnRules], list[list[Credit]]]


def grpo_batch(groups: GroupedEpisodes, rules: ReturnRules) -> list[list[Credit]]:
    """Return (r - mean of the group) / (deviation of the batch's returns + epsilon).

    Group mean and batch deviation, arXiv 2508.08221 (Lite PPO). A group with nearly equal returns
    counts little.
    """
    returns = [np.array([episode.reward for episode in group]) for group in groups]
    joined_S = np.concatenate([np.zeros(0), *returns])
    scale = 1.0 / spread(joined_S, rules) if varied(joined_S) else 0.0
    values = [scale * grpo_unscaled(of_group, rules) for of_group in returns]
    return [_of_sessions(group, of_S) for group, of_S in zip(groups, values, strict=True)]


def gdpo(groups: GroupedEpisodes, rules: ReturnRules) -> list[list[Credit]]:
    """Return each session's sum of decoupled advantages, normalised over the batch's sessions.

    Group reward-decoupled normalization, arXiv 2601.05242. Each named reward is normalised in its
    group by itself. So two combinations of rewards with the same sum keep different advantages. If
    all rewards differ only by noise, scaling would turn it into a full signal. The sums then stay
    as small as `epsilon` made them.
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
    """Return each token's discounted return, in standard deviations from the batch's mean.

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
    equation 16). At a fork V_t+1 and A_t+1 are means over the branches.
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
            of_group.append(Credit(advantages_N, {Column.VALUE: advantages_N + values_N}))
        by_group.append(of_group)
    return _whitened(by_group, rules)


def turn_gae(groups: GroupedEpisodes, rules: ReturnRules) -> list[list[Credit]]:
    """Return generalized advantages over turns: all tokens in a turn have the turn's advantage.

    As `gae`, with turns instead of tokens. V_k is the value before turn k's first trained token;
    the critic learns only there.
    """
    return _whitened(
        [[_turn_credit(episode, rules) for episode in group] for group in groups], rules
    )


def habc(groups: GroupedEpisodes, rules: ReturnRules) -> list[list[Credit]]:
    """Return each turn's weight, divided by the turns' mean weight, for all its tokens.

    Hierarchical advantage-weighted behaviour cloning, arXiv 2606.17043. The weight is 1 in a
    demonstration and 0 in a failure. In a success it is `gated`, or 1 while the critic warms up. A
    turn before the session's last intervention has no label: its weight is 0, and the mean leaves
    it out. If all weights are 0, they stay 0.
    """
    imitated = [[_imitated(episode, rules) for episode in group] for group in groups]
    counted = [i.weights_K[i.counted_K] for group in imitated for i in group]
    joined_K = np.concatenate([np.zeros(0), *counted])
    mean = float(joined_K.mean()) if len(joined_K) else 0.0
    scale = 1.0 / mean if mean > EQUAL else 0.0
    return [[imitation.credit(scale) for imitation in group] for group in imitated]


def gated(viable_K: Float64s, viability_K: Float64s, efficiency_K: Float64s) -> Float64s:
    """Return 1 + tanh((1 - p) A_v + p A_e); p is the chance of success with logit `viable_K`.

    A_v (`viability_K`) is what the turn adds to that logit. A_e (`efficiency_K`) is what it adds to
    the efficiency (minus the turns to success), less 1 for the turn itself.
    """
    chances_K = 0.5 * (1.0 + np.tanh(0.5 * viable_K))
    mixed_K = (1.0 - chances_K) * viability_K + chances_K * efficiency_K
    return np.asarray(1.0 + np.tanh(mixed_K))


def distill(groups: GroupedEpisodes, rules: ReturnRules) -> list[list[Credit]]:
    """Return each token's log-prob under the teacher, minus the policy's before the step.

    On-policy distillation: the reverse KL divergence, token by token (arXiv 2306.13649).
    """

    def gains_N(episode: Episode) -> Float64s:
        return episode.column(Column.TEACHER) - episode.column(Column.PROXIMAL)

    return [[Credit(gains_N(episode)) for episode in group] for group in groups]


def token_rewards(episode: Episode, rules: ReturnRules, outcome: float) -> Float64s:
    """Return each token's reward.

    A branch's last token gets `outcome`, a turn's last token the turn's reward. Each token also
    gets -`kl_penalty` x (log-prob before the step - the reference's log-prob).
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
    """Return credit for sessions that have one advantage for all their tokens."""
    pairs = zip(group, values_S.tolist(), strict=True)
    return [Credit(np.full(len(episode), value)) for episode, value in pairs]


def _returns(episode: Episode, rules: ReturnRules, outcome: float) -> Float64s:
    rewards_N = token_rewards(episode, rules, outcome)
    return accumulated(episode.previous_N, rewards_N, rules.token_discount)


@dataclass(frozen=True, slots=True)
class _Turns:
    """A session's turns (K) that have trained tokens, ordered by their first tokens.

    So a turn's followers come behind it.
    """

    numbers_K: Int64s
    """Each turn's number in its session."""
    first_K: Int64s
    """Place of each turn's first trained token."""
    last_K: Int64s
    previous_K: Int64s
    """The turn before each turn, `NOWHERE` for a first one."""
    places_N: Int64s
    """Each trained token's turn."""

    @property
    def ends_K(self) -> Bools:
        """Return True for each turn that no other turn follows."""
        return np.asarray(followers(self.previous_K) == 0)

    def following(self, before_K: Float64s, behind_K: Float64s) -> Float64s:
        """Return the value before each turn's next turns, or behind the turn if none follows."""
        return np.where(self.ends_K, behind_K, following(self.previous_K, before_K))

    def at_first(self, values_K: Float64s) -> Float64s:
        """Return the values at each turn's first token, NaN at all others (N)."""
        values_N = np.full(len(self.places_N), np.nan)
        values_N[self.first_K] = values_K
        return values_N

    def at_ends(self, values_K: Float64s) -> Float64s:
        """Return the values at the last tokens of last turns, NaN at all other tokens (N)."""
        values_N = np.full(len(self.places_N), np.nan)
        values_N[self.last_K[self.ends_K]] = values_K[self.ends_K]
        return values_N


def _turns(episode: Episode) -> _Turns:
    """Return a session's turns that have a trained token."""
    turns_N = episode.turns_N
    numbers, first, place_N = np.unique(turns_N, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.argsort(order, kind="stable")
    before = episode.previous_N[first[order]]
    previous_K = np.where(before == NOWHERE, NOWHERE, rank[place_N[before]])
    last_K = np.zeros(len(order), np.int64)
    np.maximum.at(last_K, rank[place_N], np.arange(len(turns_N)))
    return _Turns(numbers[order].astype(np.int64), first[order], last_K, previous_K, rank[place_N])


def _turn_credit(episode: Episode, rules: ReturnRules) -> Credit:
    turns = _turns(episode)
    # By turn: a completion's last token ends no session if the next turn branches off inside it.
    outcome_K = np.where(turns.ends_K, episode.reward, 0.0)
    rewards_K = outcome_K + np.bincount(
        turns.places_N,
        weights=token_rewards(episode, rules, 0.0),
        minlength=len(turns.first_K),
    )
    values_K = episode.column(Column.VALUE)[turns.first_K]
    deltas_K = rewards_K + rules.discount * following(turns.previous_K, values_K) - values_K
    advantages_K = accumulated(turns.previous_K, deltas_K, rules.discount * rules.trace)
    targets = {Column.VALUE: turns.at_first(advantages_K + values_K)}
    return Credit(advantages_K[turns.places_N], targets)


@dataclass(frozen=True, slots=True)
class _Imitation:
    """A session's `habc` weights by turn (K), and what the critic learns from the session."""

    weights_K: Float64s
    counted_K: Bools
    """True for the turns that count in the mean: all but those without a label."""
    turns: _Turns
    targets: Mapping[Column, Float64s]

    def credit(self, scale: float) -> Credit:
        """Return the scaled weights as the tokens' advantages."""
        return Credit((scale * self.weights_K)[self.turns.places_N], self.targets)


def _imitated(episode: Episode, rules: ReturnRules) -> _Imitation:
    """Return the turns' weights before their division by the mean, and the critic's targets."""
    turns = _turns(episode)
    labelled_K = turns.numbers_K >= (np.inf if episode.demonstration else episode.intervened)
    success = episode.reward >= rules.passes
    outcome_K = np.where(labelled_K, float(success), np.nan)
    viable_K = episode.column(Column.VIABILITY)[turns.first_K]
    later_K = turns.following(viable_K, episode.column(Column.END_VIABILITY)[turns.last_K])
    left_K = episode.column(Column.EFFICIENCY)[turns.first_K]
    farther_K = -1.0 + turns.following(left_K, episode.column(Column.END_EFFICIENCY)[turns.last_K])
    counted_K = labelled_K | episode.demonstration
    weights_K = (counted_K & (success | episode.demonstration)).astype(np.float64)
    if success and not (rules.warming or episode.demonstration):
        weights_K *= gated(viable_K, later_K - viable_K, farther_K - left_K)
    # Only a success shows how many turns lead to one.
    reached_K = np.where(outcome_K == 1, 0.0, np.nan)
    targets = {
        Column.VIABILITY: turns.at_first(outcome_K),
        Column.END_VIABILITY: turns.at_ends(outcome_K),
        Column.EFFICIENCY: turns.at_first(farther_K + reached_K),
        Column.END_EFFICIENCY: turns.at_ends(reached_K),
    }
    return _Imitation(weights_K, counted_K, turns, targets)


def _whitened(groups: list[list[Credit]], rules: ReturnRules) -> list[list[Credit]]:
    """Return advantages in standard deviations from the mean over all tokens in the batch."""
    joined_N = np.concatenate([np.zeros(0), *(c.advantages_N for group in groups for c in group)])
    if not len(joined_N):
        return groups
    mean = float(joined_N.mean())
    scale = 1.0 / spread(joined_N, rules) if float(joined_N.std()) > EQUAL else 0.0
    return [
        [Credit((credit.advantages_N - mean) * scale, credit.targets) for credit in group]
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
    "gae": BatchEstimation(gae, frozenset(value_columns(OUTPUTS["gae"]))),
    "turn_gae": BatchEstimation(turn_gae, frozenset(value_columns(OUTPUTS["turn_gae"]))),
    "habc": BatchEstimation(habc, frozenset(value_columns(OUTPUTS["habc"]))),
    "distill": BatchEstimation(distill, frozenset({Column.TEACHER, Column.PROXIMAL})),
}
