"""Forks during a run: places in ended sessions from which new groups go on. Pure.

A session with return r (from 0 to 1) is continued k times from a turn. If V is the chance that a
continuation passes, the chance that one of them ends differently is 1 - (r V + (1 - r)(1 - V))^k.
All forks share one sample budget, divided for the largest sum of these chances. Sources: TRACE's
second stage, arXiv 2606.11119, and the branches of ECHO, arXiv 2602.02150. Called by
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
"""The rule's name on `control`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentTurn:
    """A turn in an ended session from which others may go on, as a prediction sees it."""

    turn: int
    """The turn's number, from 1. It is sampled anew."""
    turns_left: int
    """Turns that the ended session had from this one on."""
    length: int
    """Tokens that the policy sampled in the whole session."""
    parent_return: float
    pool: str
    """Name of the task's pool, such as `pool:level:2`."""
    candidate: Candidate
    """The task, with its statistics."""


Predict = Callable[[ParentTurn], float]
"""Returns the chance, from 0 to 1, that a session going on from a turn passes."""


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
    """Largest number of samples for one place."""
    random: random.Random
    """Generator, seeded by the run's seed and the group's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkChoice:
    """A place from which a group goes on."""

    offer: Offer
    turn: int
    samples: int
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures that decided the choice, for the record."""


def budget(offers: Offers, share: Fraction, credits_left: int) -> ForkBudget:
    """Return the budget with which forks never exceed their share.

    The share holds for samples and for groups. Otherwise a batch would be full of small groups.
    Among groups admitted at once, forks take at most their share, rounded up.
    """
    samples = (share * offers.samples - offers.forked_samples) / (1 - share)
    groups = (share * offers.groups - offers.forked_groups) / (1 - share)
    at_once = ceil(share * credits_left)
    return ForkBudget(max(0, floor(samples)), max(0, min(floor(groups), at_once)))


def fork_choices(ask: ForkAsk, *, predict: Predict | None = None) -> list[ForkChoice]:
    """Return the places to go on from, each in a different session, within the budget.

    `predict`: the user's own function; None: the mean of the task's posterior, whatever the turn.
    Among equally good turns one is chosen at random.
    """
    estimate = predict or _posterior_mean
    offers = list(ask.offers)
    ask.random.shuffle(offers)
    best = [_best_turn(offer, candidate, estimate, ask.random) for offer, candidate in offers]
    # For any sample count, the best places have the smallest chance to end the same.
    best = nsmallest(ask.budget.groups, best, key=lambda place: place.same)
    counts = divided([place.same for place in best], ask.budget.samples, ask.most)
    return [_choice(place, count) for place, count in zip(best, counts, strict=True) if count]


def divided(same: Sequence[float], samples: int, most: int) -> list[int]:
    """Return each place's samples, 0 to `most`, for the largest sum of chances.

    `same`: each place's chance that one continuation ends as its session did. Each further sample
    gains less than the one before, so always taking the largest gain is exact.
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
    """Return the turn in a session at which a continuation most likely ends differently."""
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
