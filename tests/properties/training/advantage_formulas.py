"""Advantages as docs/algorithms defines them, token by token and as slowly as that.

Shares nothing with the trainer but the names of settings and columns.
"""

from collections.abc import Callable, Mapping, Sequence
from math import exp, tanh
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
    return (value - fmean(values)) / (deviation(values, settings) + settings.returns.epsilon)


def deviation(values: Sequence[float], settings: TrainerSection) -> float:
    return (stdev if settings.returns.deviation == "sample" else pstdev)(values)


Compared = Callable[[int, Sequence[float], TrainerSection], float]
"""Returns the advantage of one of the returns of a group."""


def of_returns(advantage: Compared) -> Formula:
    """Return the formula of an estimator that sees the returns of a group alone."""

    def formula(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
        advantages: Of = {}
        for group in groups:
            returns = [member.r for member in group]
            for place, session in enumerate(group):
                value = advantage(place, returns, settings)
                advantages |= session.all_tokens(lambda _, value=value: value)  # type: ignore[misc]
        return advantages, {}

    return formula


def leave_one_out(place: int, returns: Sequence[float], _: TrainerSection) -> float:
    others = [value for other, value in enumerate(returns) if other != place]
    return returns[place] - fmean(others) if others else 0.0


grpo = of_returns(lambda place, returns, settings: normal(returns[place], returns, settings))


def by_turn(groups: Sequence[Group], settings: TrainerSection, with_outcome: bool) -> Of:
    advantages: Of = {}

    lowest = settings.returns.restart_below

    def restarts(member: Told, turn: str) -> bool:
        return lowest is not None and member.turn_reward(turn) < lowest

    def total(member: Told, turn: str) -> float:
        if restarts(member, turn):
            return member.turn_reward(turn)
        later = [
            0.0 if restarts(member, other) else total(member, other)
            for other in member.turns_after(turn)
        ]
        end = member.r if with_outcome else 0.0
        return member.turn_reward(turn) + (
            settings.returns.discount * fmean(later) if later else end
        )

    for group in groups:
        for session in group:
            for token in session.previous:
                depth = session.depth(token[0])
                like = [
                    total(other, turn)
                    for other in group
                    for turn in other.first
                    if other.depth(turn) == depth
                ]
                advantages[session.made.name, token] = normal(
                    total(session, token[0]), like, settings
                )
    return advantages


def over_mean(place: int, returns: Sequence[float], settings: TrainerSection) -> float:
    if max(returns) - min(returns) <= EQUAL:
        return 0.0
    mean = fmean(returns)
    return (returns[place] - mean) / (mean + settings.returns.epsilon)


def grpo_batch(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    everywhere = [member.r for group in groups for member in group]
    advantages: Of = {}
    for group in groups:
        mean = fmean(member.r for member in group)
        for session in group:
            # That much from a value in the middle.
            value = normal(fmean(everywhere) + session.r - mean, everywhere, settings)
            advantages |= session.all_tokens(lambda _, value=value: value)  # type: ignore[misc]
    return advantages, {}


def gdpo(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    sums: dict[str, float] = {}
    clearest = 0.0
    for group in groups:
        for name in settings.rewards:
            rewards = [member.last_reward(name) for member in group]
            if max(rewards) - min(rewards) > EQUAL:
                apart = deviation(rewards, settings)
                clearest = max(clearest, apart / (apart + settings.returns.epsilon))
        for session in group:
            sums[session.made.name] = sum(
                weight
                * normal(
                    session.last_reward(name),
                    [other.last_reward(name) for other in group],
                    settings,
                )
                for name, weight in settings.rewards.items()
            )
    advantages: Of = {}
    for session in (member for group in groups for member in group):
        value = clearest * normal(sums[session.made.name], list(sums.values()), settings)
        advantages |= session.all_tokens(lambda _, value=value: value)  # type: ignore[misc]
    return advantages, {}


def turn(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    return by_turn(groups, settings, with_outcome=True), {}


def session_and_turn(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    of_sessions, of_turns = grpo(groups, settings)[0], by_turn(groups, settings, with_outcome=False)
    returns = settings.returns
    return {
        name: returns.session_weight * value + returns.turn_weight * of_turns[name]
        for name, value in of_sessions.items()
    }, {}


def token_reward(session: Told, token: TokenName, end: float, settings: TrainerSection) -> float:
    reward = 0.0
    if not session.after(token):
        reward += end
    if all(other[0] != token[0] for other in session.after(token)):
        reward += session.turn_reward(token[0])
    if settings.kl_penalty:
        distance = session.column(Column.PROXIMAL, token) - session.column(Column.REFERENCE, token)
        reward -= settings.kl_penalty * distance
    return reward


def reinforce(groups: Sequence[Group], settings: TrainerSection, baseline: bool) -> Of:
    advantages: Of = {}
    for group in groups:
        mean = fmean(other.r for other in group) if baseline else 0.0
        for session in group:

            def total(token: TokenName, session: Told = session, mean: float = mean) -> float:
                later = [total(other) for other in session.after(token)]
                reward = token_reward(session, token, session.r - mean, settings)
                return reward + (settings.returns.token_discount * fmean(later) if later else 0.0)

            advantages |= {} if session.left_out else session.all_tokens(total)
    return advantages


def reinforce_pp(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    return whitened(reinforce(groups, settings, baseline=False), settings), {}


def reinforce_pp_baseline(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    return whitened(reinforce(groups, settings, baseline=True), settings), {}


def gae(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    discount, trace = settings.returns.token_discount, settings.returns.trace
    advantages, learned = dict(Of()), dict(Of())
    for session in (member for group in groups for member in group if not member.left_out):

        def value(token: TokenName, session: Told = session) -> float:
            return session.column(Column.VALUE, token)

        def advantage(token: TokenName, session: Told = session) -> float:
            after = session.after(token)
            delta = token_reward(session, token, session.r, settings) - value(token, session)
            if not after:
                return delta
            delta += discount * fmean(value(other, session) for other in after)
            return delta + discount * trace * fmean(advantage(other, session) for other in after)

        advantages |= session.all_tokens(advantage)
        learned |= session.all_tokens(lambda token: advantage(token) + value(token))
    return whitened(advantages, settings), learned


def turn_gae(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    discount, trace = settings.returns.discount, settings.returns.trace
    advantages, learned = dict(Of()), dict(Of())
    for session in (member for group in groups for member in group if not member.left_out):

        def value(turn: str, session: Told = session) -> float:
            return session.column(Column.VALUE, session.first[turn])

        def advantage(turn: str, session: Told = session) -> float:
            after = session.turns_after(turn)
            tokens = (token for token in session.previous if token[0] == turn)
            delta = sum(token_reward(session, token, 0.0, settings) for token in tokens) - value(
                turn, session
            )
            if not after:
                return delta + session.r
            delta += discount * fmean(value(other, session) for other in after)
            return delta + discount * trace * fmean(advantage(other, session) for other in after)

        advantages |= session.all_tokens(lambda token: advantage(token[0]))
        learned |= {
            (session.made.name, token): advantage(turn) + value(turn)
            for turn, token in session.first.items()
        }
    return whitened(advantages, settings), learned


def habc(groups: Sequence[Group], settings: TrainerSection) -> tuple[Of, Of]:
    weights, learned = dict(Of()), dict(Of())
    for session in (member for group in groups for member in group if not member.left_out):
        success = session.r >= settings.critic.passes
        for turn, first in session.first.items():
            last = max(token for token in session.previous if token[0] == turn)
            after = [session.first[other] for other in session.turns_after(turn)]

            def later(
                value: Column,
                behind: Column,
                session: Told = session,
                after: Sequence[TokenName] = after,
                last: TokenName = last,
            ) -> float:
                if not after:
                    return session.column(behind, last)
                return fmean(session.column(value, other) for other in after)

            logit, left = (
                session.column(value, first) for value in (Column.VIABILITY, Column.EFFICIENCY)
            )
            farther = later(Column.EFFICIENCY, Column.END_EFFICIENCY) - 1
            gain = later(Column.VIABILITY, Column.END_VIABILITY) - logit
            chance = 1 / (1 + exp(-logit))
            gate = 1 + tanh((1 - chance) * gain + chance * (farther - left))
            if settings.critic.warmup_steps:
                gate = 1.0
            weights[session.made.name, first] = gate if success else 0.0
            lessons = {Column.VIABILITY: (first, float(success))}
            if success:
                lessons[Column.EFFICIENCY] = first, farther
            if not after:
                lessons[Column.END_VIABILITY] = last, float(success)
            if success and not after:
                lessons[Column.END_EFFICIENCY] = last, 0.0
            for value, (token, target) in lessons.items():
                learned[f"{session.made.name} {value}", token] = target
    mean = fmean(weights.values()) if weights else 0.0
    scale = 1 / mean if mean > EQUAL else 0.0
    advantages = {
        (session.made.name, token): scale * weights[session.made.name, session.first[token[0]]]
        for group in groups
        for session in group
        if not session.left_out
        for token in session.previous
    }
    return advantages, learned


def distill(groups: Sequence[Group], _: TrainerSection) -> tuple[Of, Of]:
    advantages: Of = {}
    for session in (member for group in groups for member in group if not member.left_out):
        for token in session.previous:
            distance = session.column(Column.TEACHER, token) - session.column(
                Column.PROXIMAL, token
            )
            advantages[session.made.name, token] = distance
    return advantages, {}


def whitened(advantages: Of, settings: TrainerSection) -> Of:
    """Return values in standard deviations from their mean over the batch."""
    values = list(advantages.values())
    equal = not values or pstdev(values) <= EQUAL
    return {
        name: 0.0 if equal else normal(value, values, settings)
        for name, value in advantages.items()
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
    "habc": habc,
    "distill": distill,
}


def by_formula(batch: Sequence[Sequence[MadeSession]], settings: TrainerSection) -> tuple[Of, Of]:
    """Return the advantages of all tokens that enter the loss, and the returns of a critic."""
    groups = [[Told(made, settings) for made in group] for group in batch]
    advantages, learned = FORMULAS[settings.advantage](groups, settings)
    trained = [session for group in groups for session in group if not session.left_out]
    names = {(session.made.name, token) for session in trained for token in session.previous}
    advantages = {name: value for name, value in advantages.items() if name in names}
    advantages = entropy_scaled(advantages, trained, settings.returns.entropy_scale)
    return hybrid_scaled(advantages, trained, settings), learned


def hybrid_scaled(advantages: Of, trained: Sequence[Told], settings: TrainerSection) -> Of:
    def column(kind: Column) -> Of:
        return {
            (session.made.name, token): session.column(kind, token)
            for session in trained
            for token in session.previous
        }

    if not settings.returns.hybrid_scale:
        return advantages
    entropies, shares = column(Column.ENTROPY), column(Column.TOP_SHARE)
    scaled: Of = {}
    for name, value in advantages.items():
        distance = normal(entropies[name], list(entropies.values()), settings)
        distance -= normal(shares[name], list(shares.values()), settings)
        scaled[name] = value * (1 + settings.returns.hybrid_scale * min(max(distance, -2), 2))
    return scaled


def entropy_scaled(advantages: Of, trained: Sequence[Told], scale: float) -> Of:
    def entropies(session: Told) -> list[float]:
        return [session.column(Column.ENTROPY, token) for token in session.previous]

    everywhere = [value for session in trained for value in entropies(session)]
    if not scale or not any(everywhere):
        return advantages
    factors = {
        session.made.name: 1 + scale * (fmean(entropies(session)) / fmean(everywhere) - 1)
        for session in trained
        if session.previous
    }
    return {name: value * factors[name[0]] for name, value in advantages.items()}
