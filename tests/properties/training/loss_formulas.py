"""The loss of a step as docs/algorithms defines it, token by token, on numbers or on tensors.

What has no gradient (sg) is computed from `frozen`, the log-probs at which the gradient is asked
for: they are plain numbers, so that no way to a slope sees through them. Shares nothing with the
trainer but the names of settings.
"""

import cmath
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from seamlessflow.trainer.loss import LossSection

Number = float | complex | Tensor


@dataclass(frozen=True)
class FormulaToken:
    """A trained token of a step."""

    session: int
    turn: int
    engine: float
    advantage: float
    reference: float
    before: float | None
    """Log-prob under the weights before the step; None: the step is one update, so they are those
    that are trained."""


@dataclass(frozen=True)
class Frozen:
    """A step with the log-probs that it has where its gradient is asked for."""

    tokens: Sequence[FormulaToken]
    frozen: Sequence[float]
    settings: LossSection

    @cached_property
    def names(self) -> tuple[str, str]:
        """Surrogate and correction."""
        return self.settings.chosen_surrogate, self.settings.chosen_correction

    def old(self, place: int) -> float:
        """Return the log-prob that the surrogate's ratio is to."""
        token = self.tokens[place]
        if self.names[1] == "none":
            return token.engine
        return self.frozen[place] if token.before is None else token.before

    def to_engine(self, place: int) -> float:
        """Return the ratio of the weights to the engine's policy."""
        return math.exp(self.frozen[place] - self.tokens[place].engine)

    def unit(self, place: int, level: str) -> list[int]:
        """Return the places of all tokens of the token's turn or session; at `token` its own."""
        if level == "token":
            return [place]
        anchor = self.tokens[place]
        return [
            other
            for other, token in enumerate(self.tokens)
            if (token.turn == anchor.turn if level == "turn" else token.session == anchor.session)
        ]


Term = tuple[Number, bool]
"""A value, and whether a bound took its gradient or its place."""


def exp(value: Number) -> Number:
    if isinstance(value, Tensor):
        return value.exp()
    return cmath.exp(value) if isinstance(value, complex) else math.exp(value)


def less(value: Number, other: Number) -> bool:
    """Return whether a value is less, that of a complex number being its real part."""
    return bool(value.real < other.real)


def clipped(ratio: Number, advantage: float, settings: LossSection) -> Term:
    low, high = 1 - settings.clip_low, 1 + settings.clip_high
    bounded = low if less(ratio, low) else high if less(high, ratio) else ratio
    kept, cut = ratio * advantage, False
    if less(bounded * advantage, kept):
        kept, cut = bounded * advantage, True
    return -kept, cut


def ppo_clip(step: Frozen, place: int, logprob: Number) -> Term:
    advantage = step.tokens[place].advantage
    loss, cut = clipped(exp(logprob - step.old(place)), advantage, step.settings)
    dual = 3.0 if step.settings.dual_clip is None else step.settings.dual_clip
    if advantage < 0 and dual and less(-dual * advantage, loss):
        loss, cut = -dual * advantage, True
    return loss, cut


def gspo(step: Frozen, place: int, logprob: Number) -> Term:
    unit = step.unit(place, step.settings.ratio_level or "session")
    mean = sum(step.frozen[member] - step.old(member) for member in unit) / len(unit)
    ratio = math.exp(mean) * exp(logprob - step.frozen[place])
    return clipped(ratio, step.tokens[place].advantage, step.settings)


def cispo(step: Frozen, place: int, logprob: Number) -> Term:
    ratio, cap = math.exp(step.frozen[place] - step.old(place)), step.settings.cap
    factor = min(ratio, cap) * step.tokens[place].advantage
    return -factor * (logprob - step.old(place)), ratio > cap


def sapo(step: Frozen, place: int, logprob: Number) -> Term:
    advantage, settings = step.tokens[place].advantage, step.settings
    heat = settings.gate_positive if advantage > 0 else settings.gate_negative
    gate = 4 / heat / (1 + exp(-heat * (exp(logprob - step.old(place)) - 1)))
    return -advantage * gate, False


def dppo(step: Frozen, place: int, logprob: Number) -> Term:
    advantage = step.tokens[place].advantage
    before, now = math.exp(step.old(place)), math.exp(step.frozen[place])
    apart = abs(now - before)
    if step.settings.divergence == "kl":
        rest = (1 - before) * math.log((1 - before) / (1 - now)) if before < 1 else 0.0
        apart = before * math.log(before / now) + rest
    away = (now - before) * advantage > 0
    if away and apart > step.settings.divergence_bound:
        return 0.0 * logprob, True
    return -advantage * exp(logprob - step.old(place)), False


def policy_gradient(step: Frozen, place: int, logprob: Number) -> Term:
    return -step.tokens[place].advantage * exp(logprob - step.frozen[place]), False


def cloning(step: Frozen, place: int, logprob: Number) -> Term:
    return -logprob, False


def pairs(step: Frozen, place: int, logprob: Number) -> Term:
    """Return the loss without its value, which is known before the step."""
    return -step.tokens[place].advantage * (logprob - step.frozen[place]), False


SURROGATES: Mapping[str, Callable[[Frozen, int, Number], Term]] = {
    "ppo_clip": ppo_clip,
    "gspo": gspo,
    "cispo": cispo,
    "sapo": sapo,
    "dppo": dppo,
    "policy_gradient": policy_gradient,
    "cloning": cloning,
    "pairs_squared": pairs,
    "pairs_logistic": pairs,
}


def tis(step: Frozen, place: int) -> tuple[float, bool]:
    unit = step.unit(place, step.settings.correction_level)
    ratio = math.exp(sum(step.old(member) - step.tokens[member].engine for member in unit))
    return min(ratio, step.settings.cap), ratio > step.settings.cap


def icepop(step: Frozen, place: int) -> tuple[float, bool]:
    ratio, cap = math.exp(step.old(place) - step.tokens[place].engine), step.settings.cap
    floor = 1 / cap if step.settings.floor is None else step.settings.floor
    inside = floor <= ratio <= cap
    return ratio if inside else 0.0, not inside


CORRECTIONS: Mapping[str, Callable[[Frozen, int], tuple[float, bool]]] = {
    "none": lambda step, place: (1.0, False),
    "tis": tis,
    "icepop": icepop,
}


def geometric_mean(step: Frozen, place: int) -> bool:
    mask = step.settings.masks.geometric_mean
    unit = step.unit(place, mask.level)
    mean = math.prod(step.to_engine(member) for member in unit) ** (1 / len(unit))
    return not (mask.low or 0) <= mean <= (mask.high or math.inf)


def outlier(step: Frozen, place: int) -> bool:
    mask = step.settings.masks.outlier
    ratios = [step.to_engine(member) for member in step.unit(place, mask.level)]
    return not all((mask.low or 0) <= ratio <= (mask.high or math.inf) for ratio in ratios)


def off_policy(step: Frozen, place: int) -> bool:
    mask = step.settings.masks.off_policy
    unit = step.unit(place, mask.level)
    drift = -sum(math.log(step.to_engine(member)) for member in unit) / len(unit)
    return mask.most is not None and step.tokens[place].advantage < 0 and drift > mask.most


MASKS: Mapping[str, Callable[[Frozen, int], bool]] = {
    "geometric_mean": geometric_mean,
    "outlier": outlier,
    "off_policy": off_policy,
}
"""Each says if a token leaves the loss."""


def sequence_mean(step: Frozen, place: int) -> float:
    return 1 / len(sessions(step)) / len(step.unit(place, "session"))


AGGREGATIONS: Mapping[str, Callable[[Frozen, int], float]] = {
    "token_mean": lambda step, place: 1 / len(step.tokens),
    "sequence_mean": sequence_mean,
    "constant": lambda step, place: 1 / len(sessions(step)) / (step.settings.constant_length or 0),
}


def sessions(step: Frozen) -> set[int]:
    return {token.session for token in step.tokens}


ESTIMATORS: Mapping[str, Callable[[Number], Number]] = {
    "k2": lambda x: x**2 / 2,
    "k3": lambda x: exp(x) - x - 1,
}
"""Of x = log reference - log policy."""


def token_loss(step: Frozen, place: int, logprob: Number, entropy: Number) -> Term:
    """Return the loss of a token, and whether it is bounded."""
    settings, (surrogate, correction) = step.settings, step.names
    weight, bounded = CORRECTIONS[correction](step, place)
    value, cut = SURROGATES[surrogate](step, place, logprob)
    gone = any(mask(step, place) for mask in MASKS.values())
    loss = 0.0 * value if gone else weight * value
    if settings.entropy:
        loss = loss - settings.entropy * entropy
    if settings.kl:
        x = step.tokens[place].reference - logprob
        ratio = exp(logprob - step.tokens[place].engine) if settings.kl_weighted else 1.0
        loss = loss + settings.kl * ratio * ESTIMATORS[settings.kl_estimator](x)
    return loss, bounded or cut or gone


def objective(step: Frozen, logprobs: Sequence[Number], entropies: Sequence[Number]) -> Number:
    """Return the loss of the step."""
    total: Number = 0.0
    for place, values in enumerate(zip(logprobs, entropies, strict=True)):
        weight = AGGREGATIONS[step.settings.aggregation](step, place)
        total = total + weight * token_loss(step, place, *values)[0]
    return total


Slopes = tuple[Tensor, Tensor]
"""Of the objective by log-prob and by entropy, in float64."""


def slopes(step: Frozen, entropies: Sequence[float], reach: complex = 1e-30j) -> Slopes:
    """Return the slopes by complex steps, which are exact but for rounding.

    f(x + ih) is f(x) + ih f'(x) without a difference of near numbers; see Squire and Trapp, 1998. A
    token's own term alone depends on its log-prob, since ratios of units are frozen.
    """

    def slope(place: int, by_logprob: complex, by_entropy: complex) -> float:
        entropy = entropies[place] + by_entropy
        moved, _ = token_loss(step, place, step.frozen[place] + by_logprob, entropy)
        weight = AGGREGATIONS[step.settings.aggregation](step, place)
        return weight * float(complex(moved).imag / reach.imag)

    count = range(len(step.tokens))
    by_logprob = [slope(place, reach, 0j) for place in count]
    by_entropy = [slope(place, 0j, reach) for place in count]
    return _tensor(by_logprob), _tensor(by_entropy)


def by_autograd(step: Frozen, entropies: Sequence[float]) -> Slopes:
    """Return the same slopes by torch."""
    logprobs_N = _tensor(step.frozen).requires_grad_()
    entropies_N = _tensor(entropies).requires_grad_()
    # One that takes part in nothing has the slope 0.
    tied = 0 * (logprobs_N.sum() + entropies_N.sum())
    value = tied + objective(step, logprobs_N.unbind(), entropies_N.unbind())
    by_logprob, by_entropy = torch.autograd.grad(value, (logprobs_N, entropies_N))
    return by_logprob, by_entropy


def by_differences(step: Frozen, entropies: Sequence[float], reach: float = 1e-5) -> Slopes:
    """Return the same slopes by central differences of the whole objective."""

    def moved(values: Sequence[float], place: int, by: float) -> list[float]:
        return [value + by * (other == place) for other, value in enumerate(values)]

    def by_logprob(place: int, by: float) -> float:
        return float(objective(step, moved(step.frozen, place, by), entropies).real)

    def by_entropy(place: int, by: float) -> float:
        return float(objective(step, step.frozen, moved(entropies, place, by)).real)

    differences = [
        [(at(place, reach) - at(place, -reach)) / (2 * reach) for place in range(len(step.tokens))]
        for at in (by_logprob, by_entropy)
    ]
    return _tensor(differences[0]), _tensor(differences[1])


def _tensor(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
