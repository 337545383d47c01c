"""Forks while a run goes on: the places of ended sessions from which new groups go on. Pure.

A session of return r (from 0 to 1) is continued k times from a turn. If V is the chance that a
continuation passes, the chance that one of them ends otherwise is 1 - (r V + (1 - r)(1 - V))^k. The
samples of all forks are one budget, divided for the largest sum of these chances: the second stage
of TRACE, arXiv 2606.11119, and the branches of ECHO, arXiv 2602.02150. Called by
`scheduler/decisions/pacing.py`.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush, nsmallest
from math import ceil, floor

from seamlessflow.infra.user_functions import ResultMalformed
from seamlessflow.scheduler.sampling.ask import Candidate, checked_rate
from seamlessflow.scheduler.state.offers import Offer, Offers
from seamlessflow.scheduler.tasks.source import TaskRow

LIVE = "forks_live"
"""Name of the rule on `control`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentTurn:
    """A turn of an ended session from which others may go on, as a prediction sees it."""

    turn: int
    """Its number, from 1. It is sampled anew."""
    turns_left: int
    """Turns that the ended session had from it on."""
    length: int
    """Tokens that the policy sampled in the whole session."""
    parent_return: float
    pool: str
    """Name of the task's pool, such as `pool:level:2`."""
    candidate: Candidate
    """The task, with its statistics."""


Predict = Callable[[ParentTurn], float]
"""Returns the chance that a session that goes on from a turn passes, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class ForkBudget:
    """Most samples and groups that forks may have now."""

    samples: int
    groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkAsk:
    """A question for places to go on from."""

    offers: Sequence[tuple[Offer, Candidate]]
    """Ended sessions, each with its task."""
    rows: Mapping[str, TaskRow]
    """Tasks by id."""
    budget: ForkBudget
    most: int
    """Most samples of a place."""
    random: random.Random
    """Generator, seeded by the run's seed and the group's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkChoice:
    """A place from which a group goes on."""

    offer: Offer
    turn: int
    samples: int
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures that it was chosen by, for the record."""


def budget(offers: Offers, share: Fraction, credits_left: int) -> ForkBudget:
    """Return what forks may have, so that they never exceed their share.

    It holds for samples and for groups. Otherwise a batch would be full of small groups. They take
    no more than their share of the groups that are admitted at once, rounded up.
    """
    samples = (share * offers.samples - offers.forked_samples) / (1 - share)
    groups = (share * offers.groups - offers.forked_groups) / (1 - share)
    at_once = ceil(share * credits_left)
    return ForkBudget(max(0, floor(samples)), max(0, min(floor(groups), at_once)))


def fork_choices(ask: ForkAsk, *, predict: Predict | None = None) -> list[ForkChoice]:
    """Return the places to go on from, each of another session, within the budget.

    `predict`: a function of the user's own; None: the mean of the task's posterior, whatever the
    turn. Of equally good turns one is chosen at random.
    """
    estimate = predict or _posterior_mean
    offers = list(ask.offers)
    ask.random.shuffle(offers)
    best = [_best_turn(offer, candidate, estimate, ask.random) for offer, candidate in offers]
    # With any number of samples, the places of the smallest chances to end the same are the best.
    best = nsmallest(ask.budget.groups, best, key=lambda place: place.same)
    counts = divided([place.same for place in best], ask.budget.samples, ask.most)
    return [_choice(place, count) for place, count in zip(best, counts, strict=True) if count]


def divided(same: Sequence[float], samples: int, most: int) -> list[int]:
    """Return each place's samples, 0 to `most`, for the largest sum of chances.

    `same`: chance of each place that one continuation ends as its session did. Each sample more
    gains less than the one before, so taking the largest gain again and again is exact.
    """
    counts = [0] * len(same)
    gains = [(chance - 1, place) for place, chance in enumerate(same) if chance < 1]
    gains.sort()
    for _ in range(samples):
        if not gains:
            break
        lost, place = heappop(gains)
        counts[place] += 1
        if counts[place] < most:
            heappush(gains, (lost * same[place], place))
    return counts


def ends_the_same(parent_return: float, rate: float) -> float:
    """Return the chance that a continuation ends as its session did."""
    passed = min(1.0, max(0.0, parent_return))
    return passed * rate + (1 - passed) * (1 - rate)


def checked_forks(choices: object) -> Sequence[ForkChoice]:
    """Return the choices after a check. Raises `ResultMalformed`."""
    if not isinstance(choices, Sequence) or not all(isinstance(c, ForkChoice) for c in choices):
        raise ResultMalformed(f"{choices!r:.80}", "a list of ForkChoice")
    return choices


@dataclass(frozen=True, slots=True)
class _Place:
    offer: Offer
    turn: int
    rate: float
    same: float


def _best_turn(
    offer: Offer, candidate: Candidate, estimate: Predict, source: random.Random
) -> _Place:
    """Return the turn of a session at which a continuation most likely ends otherwise."""
    turns = list(offer.free_turns)
    source.shuffle(turns)
    places = []
    for turn in turns:
        rate = checked_rate(estimate(_seen(offer, candidate, turn)))
        places.append(_Place(offer, turn, rate, ends_the_same(offer.parent_return, rate)))
    return min(places, key=lambda place: place.same)


def _seen(offer: Offer, candidate: Candidate, turn: int) -> ParentTurn:
    return ParentTurn(
        turn=turn,
        turns_left=offer.turns - turn + 1,
        length=offer.length,
        parent_return=offer.parent_return,
        pool=candidate.tasks.pool(candidate.place),
        candidate=candidate,
    )


def _choice(place: _Place, samples: int) -> ForkChoice:
    offer = place.offer
    return ForkChoice(
        offer=offer,
        turn=place.turn,
        samples=samples,
        figures={
            "turn": place.turn,
            "turns": offer.turns,
            "length": offer.length,
            "parent_return": offer.parent_return,
            "rate": place.rate,
            "differs": 1 - place.same**samples,
            "samples": samples,
        },
    )


def _posterior_mean(seen: ParentTurn) -> float:
    return seen.candidate.rate
