"""Advantages as docs/algorithms defines them, token by token and as slowly as that.

Shares nothing with the trainer but the names of settings and columns.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pstdev, stdev

from seamlessflow.trainer.data.chains import Column
from seamlessflow.trainer.settings import TrainerSection
from tests.properties.training.random_sessions import MadeSession, TokenName
from tests.properties.training.told_session import Of, Told

EQUAL = 1e-8
"""Returns that differ by no more are equal, and give no advantage."""


Group = Sequence[Told]
Formula = Callable[[Sequence[Group], TrainerSection], tuple[Of, Of]]
"""Returns advantages, and what a critic learns."""


def normal(value: float, values: Sequence[float], settings: TrainerSection) -> float:
    """Return the value in standard deviations from the mean of all."""
    if max(values) - min(values) <= EQUAL:
        return 0.0
    deviation = (stdev if settings.returns.deviation == "sample" else pstdev)(values)
    return (value - fmean(values)) / (deviation + settings.returns.epsilon)


Compared = Callable[[int, Sequence[float], TrainerSection], float]
"""Returns the advantage of one of the returns of a group."""


def of_returns(advantage: Compared) -> Formula:
    """Return the formula of an estimator that sees the returns of a group alone."""

    def formula(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
        found: Of = {}
        for group in groups:
            returns = [one.r for one in group]
            for place, one in enumerate(group):
                value = advantage(place, returns, settings)
                found |= one.all_tokens(lambda _, value=value: value)  # type: ignore[misc]
        return found, {}

    return formula


def leave_one_out(place: int, returns: Sequence[float], _: TrainerSection) -> float:
    others = [value for other, value in enumerate(returns) if other != place]
    return returns[place] - fmean(others) if others else 0.0


grpo = of_returns(lambda place, returns, of: normal(returns[place], returns, of))


def by_turn(groups: Sequence[Group], settings: TrainerSection, with_outcome: bool) -> Of:
    found: Of = {}

    def total(one: Told, turn: str) -> float:
        later = [total(one, other) for other in one.turns_after(turn)]
        end = one.r if with_outcome else 0.0
        return one.turn_reward(turn) + (settings.returns.discount * fmean(later) if later else end)

    for group in groups:
        for one in group:
            for token in one.previous:
                depth = one.depth(token[0])
                like = [
                    total(other, turn)
                    for other in group
                    for turn in other.first
                    if other.depth(turn) == depth
                ]
                found[one.made.name, token] = normal(total(one, token[0]), like, settings)
    return found


def over_mean(place: int, returns: Sequence[float], settings: TrainerSection) -> float:
    if max(returns) - min(returns) <= EQUAL:
        return 0.0
    mean = fmean(returns)
    return (returns[place] - mean) / (mean + settings.returns.epsilon)


def grpo_batch(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    everywhere = [one.r for group in groups for one in group]
    found: Of = {}
    for group in groups:
        mean = fmean(one.r for one in group)
        for one in group:
            # That much from a value in the middle.
            value = normal(fmean(everywhere) + one.r - mean, everywhere, settings)
            found |= one.all_tokens(lambda _, value=value: value)  # type: ignore[misc]
    return found, {}


def gdpo(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    sums: dict[str, float] = {}
    for group in groups:
        for one in group:
            sums[one.made.name] = sum(
                weight * normal(one.given(name), [other.given(name) for other in group], settings)
                for name, weight in settings.rewards.items()
            )
    found: Of = {}
    for one in (one for group in groups for one in group):
        value = normal(sums[one.made.name], list(sums.values()), settings)
        found |= one.all_tokens(lambda _, value=value: value)  # type: ignore[misc]
    return found, {}


def turn(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    return by_turn(groups, settings, with_outcome=True), {}


def session_and_turn(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    of_sessions, of_turns = grpo(groups, settings)[0], by_turn(groups, settings, with_outcome=False)
    returns = settings.returns
    return {
        name: returns.session_weight * value + returns.turn_weight * of_turns[name]
        for name, value in of_sessions.items()
    }, {}


def token_reward(one: Told, token: TokenName, end: float, settings: TrainerSection) -> float:
    found = 0.0
    if not one.after(token):
        found += end
    if all(other[0] != token[0] for other in one.after(token)):
        found += one.turn_reward(token[0])
    if settings.kl_penalty:
        distance = one.column(Column.PROXIMAL, token) - one.column(Column.REFERENCE, token)
        found -= settings.kl_penalty * distance
    return found


def reinforce(groups: Sequence[Group], settings: TrainerSection, baseline: bool) -> Of:
    found: Of = {}
    for group in groups:
        mean = fmean(other.r for other in group) if baseline else 0.0
        for one in group:

            def total(token: TokenName, one: Told = one, mean: float = mean) -> float:
                later = [total(other) for other in one.after(token)]
                own = token_reward(one, token, one.r - mean, settings)
                return own + (settings.returns.token_discount * fmean(later) if later else 0.0)

            found |= {} if one.left_out else one.all_tokens(total)
    return found


def reinforce_pp(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    return whitened(reinforce(groups, settings, baseline=False), settings), {}


def reinforce_pp_baseline(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    return whitened(reinforce(groups, settings, baseline=True), settings), {}


def gae(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    discount, trace = settings.returns.token_discount, settings.returns.trace
    found, learned = dict(Of()), dict(Of())
    for one in (one for group in groups for one in group if not one.left_out):

        def value(token: TokenName, one: Told = one) -> float:
            return one.column(Column.VALUE, token)

        def advantage(token: TokenName, one: Told = one) -> float:
            after = one.after(token)
            delta = token_reward(one, token, one.r, settings) - value(token, one)
            if not after:
                return delta
            delta += discount * fmean(value(other, one) for other in after)
            return delta + discount * trace * fmean(advantage(other, one) for other in after)

        found |= one.all_tokens(advantage)
        learned |= one.all_tokens(lambda token: advantage(token) + value(token))
    return whitened(found, settings), learned


def turn_gae(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    discount, trace = settings.returns.discount, settings.returns.trace
    found, learned = dict(Of()), dict(Of())
    for one in (one for group in groups for one in group if not one.left_out):

        def value(turn: str, one: Told = one) -> float:
            return one.column(Column.VALUE, one.first[turn])

        def advantage(turn: str, one: Told = one) -> float:
            after = one.turns_after(turn)
            own = (token for token in one.previous if token[0] == turn)
            delta = sum(token_reward(one, token, 0.0, settings) for token in own) - value(turn, one)
            if not after:
                return delta + one.r
            delta += discount * fmean(value(other, one) for other in after)
            return delta + discount * trace * fmean(advantage(other, one) for other in after)

        found |= one.all_tokens(lambda token: advantage(token[0]))
        learned |= {
            (one.made.name, token): advantage(turn) + value(turn)
            for turn, token in one.first.items()
        }
    return whitened(found, settings), learned


def distill(groups: Sequence[Group], _: TrainerSection) -> tuple[Of, Of]:
    found: Of = {}
    for one in (one for group in groups for one in group if not one.left_out):
        for token in one.previous:
            distance = one.column(Column.TEACHER, token) - one.column(Column.PROXIMAL, token)
            found[one.made.name, token] = distance
    return found, {}


def whitened(found: Of, settings: TrainerSection) -> Of:
    """Return values in standard deviations from their mean over the batch."""
    values = list(found.values())
    equal = not values or pstdev(values) <= EQUAL
    return {
        name: 0.0 if equal else normal(value, values, settings) for name, value in found.items()
    }


FORMULAS: Mapping[str, Formula] = {
    "grpo": grpo,
    "grpo_unscaled": of_returns(lambda place, returns, _: returns[place] - fmean(returns)),
    "rloo": of_returns(leave_one_out),
    "maxrl": of_returns(over_mean),
    "grpo_batch": grpo_batch,
    "gdpo": gdpo,
    "turn": turn,
    "session_and_turn": session_and_turn,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "gae": gae,
    "turn_gae": turn_gae,
    "distill": distill,
}


def by_formula(batch: Sequence[Sequence[MadeSession]], settings: TrainerSection) -> tuple[Of, Of]:
    """Return the advantages of all tokens that enter the loss, and the returns of a critic."""
    groups = [[Told(made, settings) for made in group] for group in batch]
    found, learned = FORMULAS[settings.advantage](groups, settings)
    trained = [one for group in groups for one in group if not one.left_out]
    names = {(one.made.name, token) for one in trained for token in one.previous}
    found = {name: value for name, value in found.items() if name in names}
    return entropy_scaled(found, trained, settings.returns.entropy_scale), learned


def entropy_scaled(found: Of, trained: Sequence[Told], scale: float) -> Of:
    def entropies(one: Told) -> list[float]:
        return [one.column(Column.ENTROPY, token) for token in one.previous]

    everywhere = [value for one in trained for value in entropies(one)]
    if not scale or not any(everywhere):
        return found
    factors = {
        one.made.name: 1 + scale * (fmean(entropies(one)) / fmean(everywhere) - 1)
        for one in trained
        if one.previous
    }
    return {name: value * factors[name[0]] for name, value in found.items()}
