"""Advantage estimators: from the rewards in a group's sessions to each token's advantage.

Estimators are registered by name (`ESTIMATORS`, the setting `trainer.advantage`); `batch.py` calls
them. An estimator that sees only returns gives all trained tokens in a session one advantage. `_S`
counts a group's sessions, `_N` a session's trained tokens, `_K` its turns.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Literal

import numpy as np

from seamlessflow.infra.user_functions import OwnSettings, chosen
from seamlessflow.schemas.arrays import Float64s
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.chains import NOWHERE
from seamlessflow.trainer.data.episodes import Episode


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnRules:
    """The settings for returns, `trainer.returns`."""

    discount: float = 1.0
    """Factor with which a turn's return counts in the previous turn's."""
    session_weight: float = 1.0
    turn_weight: float = 1.0
    token_discount: float = 1.0
    """Factor with which a token's return counts in the previous token's."""
    trace: float = 1.0
    """Lambda in generalized advantages."""
    kl_penalty: float = 0.0
    """Weight in a token's reward for the divergence from the reference."""
    epsilon: float = 1e-6
    """Added to each deviation before values are divided by it."""
    deviation: Literal["population", "sample"] = "population"
    rewards: Mapping[str, float] = field(default_factory=lambda: ONE_REWARD)
    """Each counted reward's weight, by name."""
    restart_below: float | None = None
    """Returns restart at a turn whose reward is below this; None: they never do."""
    spread_over: float = 0.3
    """Deviation of first returns up to which the filter `spread` applies."""
    passes: float = 1.0
    """Least return that is a success, `trainer.critic.passes`."""
    warming: bool = False
    """True in the first steps: a critic that judges successes has not learned enough yet."""


Advantages = Sequence[Float64s]
"""Each session's (S) advantages for its trained tokens (N)."""
Estimator = Callable[[Sequence[Episode], ReturnRules], Advantages]

EQUAL = 1e-8
"""Largest difference between returns that count as equal, which have no advantage at all."""


def grpo(returns_S: Float64s, rules: ReturnRules) -> Float64s:
    """Return (r - mean) / (deviation of the group + epsilon); zeros if all returns are equal.

    Group relative policy optimization, arXiv 2402.03300, section 4.1.2.
    """
    if not varied(returns_S):
        return np.zeros_like(returns_S)
    return np.asarray((returns_S - returns_S.mean()) / spread(returns_S, rules))


def grpo_unscaled(returns_S: Float64s, _: ReturnRules) -> Float64s:
    """Return r - mean of the group, not scaled by the returns' spread; zeros if all are equal.

    Dr. GRPO, arXiv 2503.20783.
    """
    if not varied(returns_S):
        return np.zeros_like(returns_S)
    return np.asarray(returns_S - returns_S.mean())


def rloo(returns_S: Float64s, _: ReturnRules) -> Float64s:
    """Return r - mean of the other sessions; zeros if all returns are equal, or for one session.

    REINFORCE leave-one-out, arXiv 2402.14740.
    """
    if not varied(returns_S):
        return np.zeros_like(returns_S)
    count = len(returns_S)
    return np.asarray((returns_S - returns_S.mean()) * (count / (count - 1)))


def maxrl(returns_S: Float64s, rules: ReturnRules) -> Float64s:
    """Return (r - mean) / (mean of the group + epsilon); zeros if all returns are equal.

    Maximum likelihood reinforcement learning, arXiv 2602.02710. Let p be the chance to succeed. If
    returns are 0 and 1, the mean gradient is the gradient of log p, truncated to as many terms as
    the group has sessions. Raises `ValueError` for a return below 0, since no chance is below 0.
    """
    if (least := float(returns_S.min(initial=0.0))) < 0:
        raise ValueError(f"maxrl needs returns of at least 0, as chances are, and one is {least:g}")
    if not varied(returns_S):
        return np.zeros_like(returns_S)
    return np.asarray((returns_S - returns_S.mean()) / (returns_S.mean() + rules.epsilon))


def decoupled(episodes: Sequence[Episode], rules: ReturnRules) -> Float64s:
    """Return a weighted sum for each session (S): its `grpo` advantage by each named reward.

    GDPO, arXiv 2601.05242, before it normalises the sums over the batch. A reward that a session
    lacks is 0.
    """
    found_S = np.zeros(len(episodes))
    for name in sorted(rules.rewards):
        found_S += rules.rewards[name] * grpo(_named(episodes, name), rules)
    return found_S


def clearness(episodes: Sequence[Episode], rules: ReturnRules) -> float:
    """Return deviation / (deviation + epsilon) for the named reward that differs most.

    It is near 1 with a true difference, and near 0 if all rewards differ only by noise. It is 0 if
    no reward differs.
    """
    rewards = [_named(episodes, name) for name in rules.rewards]
    spreads = [spread(rewards_S, rules) for rewards_S in rewards if varied(rewards_S)]
    return 1 - rules.epsilon / max(spreads) if spreads else 0.0


def _named(episodes: Sequence[Episode], name: str) -> Float64s:
    """Return each session's reward (S) with that name; 0 for a session that lacks it."""
    return np.array([episode.rewards.get(name, 0.0) for episode in episodes])


def varied(returns_S: Float64s) -> bool:
    """Return whether the returns differ by more than `EQUAL`."""
    return bool(np.ptp(returns_S) > EQUAL) if len(returns_S) else False


def spread(values_S: Float64s, rules: ReturnRules) -> float:
    """Return the divisor that scales values: their deviation + epsilon.

    Without the epsilon, a judge's noise would make advantages as large as a true difference does.
    `rules.deviation` chooses the population's deviation (1 / n) or a sample's (1 / (n - 1)).
    """
    lost = 1 if rules.deviation == "sample" else 0
    return float(values_S.std(ddof=lost)) + rules.epsilon if len(values_S) > lost else rules.epsilon


def no_advantages(episodes: Sequence[Episode]) -> Advantages:
    """Return 0 for each token: its advantage is estimated once the batch is fixed."""
    return [np.zeros(len(episode)) for episode in episodes]


def turn(episodes: Sequence[Episode], settings: ReturnRules) -> Advantages:
    """Return for each token its turn's normalised return.

    The mean and the standard deviation are over the group's turns at the same depth.

    Turn-level credit, arXiv 2505.11821 (MT-GRPO), with discounted returns: see `turn_returns`.
    """
    returns = [turn_returns(episode, settings) for episode in episodes]
    return _by_turn(episodes, returns, settings)


def session_and_turn(episodes: Sequence[Episode], settings: ReturnRules) -> Advantages:
    """Return a weighted sum: GRPO's advantage, and the advantage from turn rewards only.

    Episode and step advantage, arXiv 2509.11543 (UI-S1) and 2505.10978 (GiGPO).
    """
    returns = [turn_returns(episode, settings, outcome=0.0) for episode in episodes]
    of_turns = _by_turn(episodes, returns, settings)
    of_sessions = by_session(grpo, episodes, settings)
    return [
        settings.session_weight * session_N + settings.turn_weight * turn_N
        for session_N, turn_N in zip(of_sessions, of_turns, strict=True)
    ]


def gdpo(episodes: Sequence[Episode], settings: ReturnRules) -> Advantages:
    """Return each session's sum of decoupled advantages, the same for all its tokens."""
    values = decoupled(episodes, settings).tolist()
    return [np.full(len(episode), value) for episode, value in zip(episodes, values, strict=True)]


def by_session(
    of_returns: Callable[[Float64s, ReturnRules], Float64s],
    episodes: Sequence[Episode],
    settings: ReturnRules,
) -> Advantages:
    """Return the advantage that `of_returns` gives each session's return, for all its tokens."""
    values = of_returns(np.array([episode.reward for episode in episodes]), settings).tolist()
    return [np.full(len(episode), value) for episode, value in zip(episodes, values, strict=True)]


def turn_returns(
    episode: Episode, rules: ReturnRules, outcome: float | None = None
) -> dict[int, float]:
    """Return the discounted return of each turn that has a trained token.

    G_k = r_k + discount x (mean of G over the turns that follow k). A last turn also gets
    `outcome`, by default the session's return. If a turn's reward is below `restart_below`, its
    G_k is r_k, and it adds 0 to the turn before it (UI-S1, arXiv 2509.11543).
    """
    previous = episode.previous_turns
    following: defaultdict[int, list[float]] = defaultdict(list)
    returns: dict[int, float] = {}
    last = episode.reward if outcome is None else outcome
    # A turn begins behind all that precede it, so its followers are known when it is reached.
    for number in reversed(list(previous)):
        further = following[number]
        later = rules.discount * float(np.mean(further)) if further else last
        reward = float(episode.turn_rewards_K[number])
        restarts = rules.restart_below is not None and reward < rules.restart_below
        returns[number] = reward if restarts else reward + later
        following[previous[number]].append(0.0 if restarts else returns[number])
    return returns


def first_return(episode: Episode, rules: ReturnRules) -> float:
    """Return the discounted return of a session's first turn with a trained token."""
    return turn_returns(episode, rules)[int(episode.turns_N[0])]


def _by_turn(
    episodes: Sequence[Episode], returns: Sequence[Mapping[int, float]], settings: ReturnRules
) -> Advantages:
    """Return the turns' returns, normalised over all sessions' turns at the same depth."""
    depths = [_depths(episode) for episode in episodes]
    by_depth: defaultdict[int, list[float]] = defaultdict(list)
    for depth, values in zip(depths, returns, strict=True):
        for number, value in values.items():
            by_depth[depth[number]].append(value)
    normal = {depth: _normal(np.array(values), settings) for depth, values in by_depth.items()}
    advantages = []
    for episode, depth, values in zip(episodes, depths, returns, strict=True):
        of_K = np.zeros(len(episode.turn_rewards_K))
        for number, value in values.items():
            mean, deviation = normal[depth[number]]
            of_K[number] = (value - mean) / deviation
        advantages.append(of_K[episode.turns_N])
    return advantages


def _depths(episode: Episode) -> dict[int, int]:
    """Return how many turns precede each turn on its branch."""
    depths = {NOWHERE: -1}
    for number, before in episode.previous_turns.items():
        depths[number] = depths[before] + 1
    return depths


def _normal(values: Float64s, settings: ReturnRules) -> tuple[float, float]:
    """Return mean and deviation + epsilon; the deviation is infinite if the values are equal."""
    deviation = spread(values, settings) if varied(values) else float("inf")
    return float(values.mean()), deviation


ESTIMATORS: Mapping[str, Estimator] = {
    "grpo": partial(by_session, grpo),
    "grpo_unscaled": partial(by_session, grpo_unscaled),
    "rloo": partial(by_session, rloo),
    "maxrl": partial(by_session, maxrl),
    # `BATCH_ESTIMATORS` has the next two names too, and scales these advantages further.
    "grpo_batch": partial(by_session, grpo_unscaled),
    "gdpo": gdpo,
    "turn": turn,
    "session_and_turn": session_and_turn,
}


def estimator(
    name: str, rules: ReturnRules, settings: OwnSettings = MappingProxyType({})
) -> Callable[[Sequence[Episode]], Advantages]:
    """Return an estimator by its name, built-in or a user's with its own settings.

    The estimator raises `FunctionUnusable` if it cannot be imported.
    """
    return lambda episodes: chosen(ESTIMATORS, name, settings)(episodes, rules)
