"""Samplers, which choose the next tasks by earlier groups' results; and terms for groups.

Registered by name in `registry.py` for the settings `pacing.sampler.name` and `pacing.terms.name`.
Each is a pure function; its settings are keyword arguments.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import islice
from typing import NamedTuple

import numpy as np

from seamlessflow.scheduler.sampling.ask import Ask, Candidate, TaskChoice, checked_rate
from seamlessflow.scheduler.state.arms import Arm

_FEWEST_SAMPLES = 2
"""Least samples for a group in `trace`: a single sample has nothing to differ from."""
_EASY_RATE = 0.6
"""Pass rate up to which a group has all its samples in `by_success`: DART's figure."""
_EASY_SHARE = 0.083
_HARD_SHARE = 0.167
_STEP = 0.01
_EASY_FLOOR = 0.1
_HARD_FLOOR = 0.4
_FEWEST_RESULTS = 32
"""Ready groups after which both probabilities move (ours; in GRESO a batch of groups)."""


def vade(ask: Ask) -> list[TaskChoice]:
    """Return the tasks with the largest p (1 - p)², each p drawn from the task's posterior.

    VADE, arXiv 2511.18902: Thompson sampling. Discounting old results is ours.
    """
    return _largest(ask, lambda rate: rate * (1 - rate) ** 2)


def target(ask: Ask, *, rate: float = 0.5) -> list[TaskChoice]:
    """Return the tasks whose rate, drawn from its posterior, is nearest to the target.

    MoPPS, arXiv 2507.04632.
    """
    return _largest(ask, lambda drawn: -abs(drawn - rate))


def _largest(ask: Ask, worth: Callable[[float], float]) -> list[TaskChoice]:
    draw = ask.random.betavariate
    drawn = [(draw(*candidate.posterior), candidate) for candidate in ask.candidates]
    best = nlargest(ask.count, drawn, key=lambda pair: worth(pair[0]))
    return [
        TaskChoice(
            place=candidate.place, figures={"rate": candidate.rate, "drawn_rate": round(rate, 6)}
        )
        for rate, candidate in best
    ]


class _Keeping(NamedTuple):
    """Probabilities of keeping a task for each equal group in a row, and the counts behind them."""

    easy: float = 1.0
    hard: float = 1.0
    ready: float = 0.0
    won: float = 0.0
    lost: float = 0.0

    def after(self, pool: Arm) -> "_Keeping":
        """Return both probabilities moved towards their shares, if enough groups got ready."""
        results = pool.ready - self.ready
        if results < _FEWEST_RESULTS:
            return self
        easy = _moved(self.easy, (pool.won - self.won) / results, _EASY_SHARE, _EASY_FLOOR)
        hard = _moved(self.hard, (pool.lost - self.lost) / results, _HARD_SHARE, _HARD_FLOOR)
        return _Keeping(easy, hard, pool.ready, pool.won, pool.lost)


def _moved(probability: float, share: float, wanted: float, floor: float) -> float:
    step = _STEP if share < wanted else -_STEP
    return round(min(1.0, max(floor, probability + step)), 6)


def greso(ask: Ask) -> list[TaskChoice]:
    """Return random tasks; with z equal groups in a row, a task is kept with probability p^z.

    GRESO, arXiv 2506.02177, with the figures of AstraFlow's code: p for easy and for hard tasks
    moves by 0.01 towards shares of 8.3 and 16.7 % equal groups, and stays above 0.1 and 0.4.
    """
    keeping = _Keeping(**{name: ask.figures.get(name, old) for name, old in _START.items()})
    keeping = keeping.after(ask.pool)
    order = list(ask.candidates)
    ask.random.shuffle(order)
    kept: list[Candidate] = []
    left_out: list[Candidate] = []
    for candidate in order:
        if len(kept) == ask.count:
            break
        is_kept = ask.random.random() < _kept_with(keeping, candidate.arm)
        (kept if is_kept else left_out).append(candidate)
    # If too few are kept, the others are better than nothing.
    drawn = [*kept, *left_out][: ask.count]
    return [
        TaskChoice(
            place=candidate.place, figures={**keeping._asdict(), "equal": candidate.arm.equal}
        )
        for candidate in drawn
    ]


_START: Mapping[str, float] = _Keeping()._asdict()


def _kept_with(keeping: _Keeping, arm: Arm) -> float:
    easy = arm.last_passed == arm.last_counted
    return float((keeping.easy if easy else keeping.hard) ** arm.equal)


def srpo(ask: Ask, *, return_after: int | None = None) -> list[TaskChoice]:
    """Return the next tasks in a pass over all, except those whose newest group passed whole.

    SRPO, arXiv 2504.14286: history resampling. Mixed, all-wrong and undecided tasks stay. When all
    tasks have left, all come back for a pass. `return_after` (ours): for how many passes a task
    stays away; None: for all further ones.

    The newest choice's figures give the place in a pass. Each task's figures show whether the pass
    has drawn it. So a scheduler that takes over goes on at the same place.
    """
    finished = int(ask.figures.get("pass", 0))
    first = int(ask.figures.get("place", 0))
    begun = _Pass(ask, finished, first, return_after, bool(ask.figures.get("all_back")))
    choices = begun.choices(ask.count)
    if len(choices) == ask.count:
        return choices
    drawn = frozenset(choice.place for choice in choices)
    following = _Pass(ask, finished + 1, 0, return_after, drawn=drawn)
    following = replace(following, all_back=not following.stays())
    return choices + following.choices(ask.count - len(choices))


@dataclass(frozen=True)
class _Pass:
    ask: Ask
    finished: int
    """Number of finished passes."""
    first: int
    """Number in the pass's order from which it goes on."""
    return_after: int | None
    all_back: bool = False
    """True if the tasks that had left come back."""
    drawn: frozenset[int] = frozenset()
    """Places that the same question chose in the previous pass, so they are under way too."""

    def choices(self, count: int) -> list[TaskChoice]:
        """Return the pass's next tasks, at most `count`."""
        free = islice(self._free(), count)
        return [
            TaskChoice(
                place=place,
                figures={"pass": self.finished, "place": number, "all_back": float(self.all_back)},
            )
            for place, number in free
        ]

    def stays(self) -> bool:
        """Return whether a task has not left, by its newest result; it may be under way now."""
        # In any order: the shuffled order costs more.
        return not all(map(self._has_left, range(len(self.ask.tasks))))

    def _turns(self) -> Iterator[tuple[int, int]]:
        """Yield number and place of each task that still has its turn."""
        for number, place in enumerate(self.ask.in_order(self.finished, self.first), self.first):
            drawn_in = self.ask.arm(place).figures.get("pass")
            if drawn_in != self.finished and not self._has_left(place):
                yield number, place

    def _free(self) -> Iterator[tuple[int, int]]:
        """Yield the place of each task to draw, and the number in the order to continue from."""
        held = None
        for number, place in self._turns():
            if not self._is_under_way(place):
                yield place, number + 1 if held is None else held
            elif held is None:  # under way since the previous pass, so its turn comes later
                held = number

    def _is_under_way(self, place: int) -> bool:
        return place in self.drawn or not self.ask.is_free(place)

    def _has_left(self, place: int) -> bool:
        arm = self.ask.arm(place)
        if self.all_back or not arm.last_counted or arm.last_passed < arm.last_counted:
            return False
        away = self.finished - arm.figures.get("pass", 0)
        return self.return_after is None or away <= self.return_after


def trace(
    ask: Ask, *, most: int | None = None, predict: Callable[[Candidate], float] | None = None
) -> list[TaskChoice]:
    """Return tasks with sample counts that give the most groups with both passes and failures.

    TRACE, arXiv 2606.11119, first stage. All groups share one sample budget; a task has 0, or 2 to
    `most` (None: twice `run.group_size`). `predict`: the user's own function, which returns a
    candidate's rate; None: its posterior's mean.

    For each n, the worth of n samples grows with p (1 - p). So if at most k tasks are chosen, the k
    with the largest p (1 - p) are the best, and a knapsack over only these is exact.
    """
    estimate = predict or _posterior_mean
    candidates = list(ask.candidates)
    ask.random.shuffle(candidates)  # so that ties are broken at random
    rated = [(checked_rate(estimate(candidate)), candidate) for candidate in candidates]
    best = nlargest(ask.count, rated, key=lambda pair: pair[0] * (1 - pair[0]))
    counts = divided([rate for rate, _ in best], ask.count * ask.samples, most or 2 * ask.samples)
    return [
        TaskChoice(place=candidate.place, samples=count, figures={"rate": rate, "samples": count})
        for count, (rate, candidate) in zip(counts, best, strict=True)
        if count
    ]


def explore(
    ask: Ask, *, samples: int = 96, best: int = 12, worst: int = 12, under_way: int = 8
) -> list[TaskChoice]:
    """Return the next tasks in shuffled order, each with an exploration's sample count.

    Sol-RL, arXiv 2604.06916. `scheduler/decisions/exploration.py` reads the other settings.
    """
    del best, worst, under_way
    places = islice(filter(ask.is_free, ask.from_draw()), ask.count)
    return [TaskChoice(place=place, samples=samples) for place in places]


def divided(rates: Sequence[float], budget: int, most: int) -> list[int]:
    """Return each task's samples, 0 or 2 to `most`, for the largest sum of worths.

    `budget`: most samples for all tasks together. Time is proportional to tasks x budget x `most`.
    """
    best_B = np.zeros(budget + 1)
    counts = []
    for rate in rates:
        options = np.full((most + 1, budget + 1), -np.inf)
        options[0] = best_B
        for samples in range(_FEWEST_SAMPLES, min(most, budget) + 1):
            options[samples, samples:] = best_B[: budget + 1 - samples] + worth(rate, samples)
        # Among equal sums the fewest samples: `argmax` takes the first.
        counts.append(options.argmax(axis=0))
        best_B = options.max(axis=0)
    left = budget
    taken = []
    for choice in reversed(counts):
        taken.append(int(choice[left]))
        left -= taken[-1]
    return taken[::-1]


def worth(rate: float, samples: int) -> float:
    """Return the chance that among this many samples some pass and some fail."""
    return float(1 - rate**samples - (1 - rate) ** samples)


def _posterior_mean(candidate: Candidate) -> float:
    return candidate.rate


def by_success(
    candidate: Candidate,
    choice: TaskChoice,
    source: random.Random,
    *,
    least: int = 2,
    exempt: float = 0.1,
) -> TaskChoice:
    """Return fewer samples for a task that passes often, and the turns that a success needs.

    DART, arXiv 2509.23866: all samples up to a rate of 0.6. From there linearly down to `least`
    (ours). The turn limit is the length of the task's longest session that passed. A share `exempt`
    of groups (ours) has the run's limit, since a limit that only follows successes can never grow.
    """
    size = choice.samples or least
    fewest = min(least, size)
    easy = max(0.0, candidate.rate - _EASY_RATE) / (1 - _EASY_RATE)
    samples = round(size - (size - fewest) * easy)
    limit = choice.turn_limit or 0
    longest = candidate.arm.longest
    if longest and source.random() >= exempt:
        limit = min(longest, limit or longest)
    return replace(choice, samples=samples, turn_limit=limit)
