"""Questions to samplers and their answers: tasks from one source with statistics, and choices.

A task is read from its file only when a sampler looks at it. So a choice among a million tasks
reads only the chosen ones.
"""

import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from seamlessflow.infra.user_functions import ResultMalformed
from seamlessflow.scheduler.sampling.index import TaskIndex
from seamlessflow.scheduler.state.arms import NO_ARM, Arm, Arms, PassCounts
from seamlessflow.scheduler.tasks.source import TaskRow, shuffled_place

PRIOR_WEIGHT = 4
"""Weight of the pool's rate, in samples, beside the task's own samples."""


class Opponent(NamedTuple):
    """A past version that groups may play against."""

    version: int
    win_rate: float
    """Share of games against it that were won; 0.5 before the first."""


@dataclass(frozen=True, slots=True)
class OfferedOpponents:
    """The versions that a group may play against."""

    past: Sequence[Opponent]
    """Past versions, the oldest first."""
    newest: int
    """The newest version, the player itself."""
    present: int | None = None
    """The previous group's opponent, or None if it had none."""
    groups: int = 0
    """Number of groups since that opponent was drawn."""
    groups_per_step: int = 1


@dataclass(frozen=True)
class Candidate:
    """A task that may be chosen."""

    place: int
    """Its place in the source."""
    arm: Arm
    """Its statistics."""
    counts: PassCounts
    """Its passes and failures, discounted to now."""
    pool_rate: float
    """Share of its pool's sessions that passed."""
    tasks: TaskIndex = field(repr=False, compare=False)
    opponents: OfferedOpponents | None = None
    """Versions to play against, or None if no policy shows any."""

    @cached_property
    def row(self) -> TaskRow:
        """The task, read now. Raises `TasksRejected` if its file has changed."""
        return self.tasks.rows[self.place]

    @property
    def task_id(self) -> str:
        """The task's id, read now."""
        return self.row.task_id

    @property
    def posterior(self) -> tuple[float, float]:
        """Parameters of the Beta distribution for its pass rate."""
        return (
            PRIOR_WEIGHT * self.pool_rate + self.counts.passed,
            PRIOR_WEIGHT * (1 - self.pool_rate) + self.counts.failed,
        )

    @property
    def rate(self) -> float:
        """That distribution's mean."""
        passed, failed = self.posterior
        return passed / (passed + failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChoice:
    """A task to draw, and how."""

    place: int
    """Its place in the source."""
    samples: int | None = None
    """Sample count of its group; None: as the task or the settings say."""
    turn_limit: int | None = None
    """Turn limit for its sessions; None: as the task or the settings say."""
    arms: tuple[str, ...] = ()
    """Further arms that the result counts for."""
    opponent: int | None = None
    """Past version that the group plays against, or the newest one; None: none."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures that decided the choice, for the record."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A question for tasks from one source."""

    count: int
    """Number of tasks to choose: at most as many as groups that may be admitted now."""
    draw: int
    """The first draw's number in its source."""
    samples: int
    """A group's samples, `run.group_size`."""
    random: random.Random
    """Generator, seeded by the run's seed, the source and the draw's number."""
    source: str
    """The source's name."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures from this source's newest choice; empty for the first."""
    pool: Arm = NO_ARM
    """Statistics for all tasks from this source."""
    tasks: TaskIndex
    arms: Arms
    step: int = 0
    """Trained steps."""
    under_way: Collection[int] = frozenset()
    """Keys of the tasks that have a group already. They are not drawn again."""
    most_candidates: int = 4096
    seed: int = 0
    """Seed for the tasks' order."""

    @cached_property
    def candidates(self) -> Sequence[Candidate]:
        """Tasks to choose from: at random, `pacing.sampler.candidates` of those not under way."""
        size = len(self.tasks)
        places: Sequence[int] = range(size)
        if size > self.most_candidates:
            places = self.random.sample(range(size), self.most_candidates)
        return [self.candidate(place) for place in places if self.is_free(place)]

    def is_free(self, place: int) -> bool:
        """Return whether the task at a place has no group under way."""
        return self.tasks.key(place) not in self.under_way

    def candidate(self, place: int) -> Candidate:
        """Return the task at a place in the source."""
        return candidate_of(self.tasks, self.arms, self.step, place, self._pool_rates)

    @cached_property
    def _pool_rates(self) -> dict[str, float]:
        """The pass rates asked for so far, by pool."""
        return {}

    def arm(self, place: int) -> Arm:
        """Return the statistics for the task at a place."""
        return self.arms.by_key(self.tasks.key(place))

    def from_draw(self) -> Iterator[int]:
        """Yield each place once, in the passes' shuffled order from the draw on."""
        size = len(self.tasks)
        numbers = range(self.draw, self.draw + 2 * size)
        places = (shuffled_place(n % size, size, self.seed, n // size) for n in numbers)
        return iter(dict.fromkeys(places))

    def in_order(self, finished_passes: int, first: int = 0) -> Iterator[int]:
        """Yield the places for a pass over all tasks in its shuffled order, from `first` on."""
        size = len(self.tasks)
        for number in range(first, size):
            yield shuffled_place(number, size, self.seed, finished_passes)


def candidate_of(
    tasks: TaskIndex,
    arms: Arms,
    step: int,
    place: int,
    pool_rates: dict[str, float] | None = None,
) -> Candidate:
    """Return the task at a place with its statistics as of a trained step.

    `pool_rates` keeps the pools' rates for further tasks.
    """
    memory = arms.counting.memory
    arm = arms.by_key(tasks.key(place))
    pool = tasks.pool(place)
    rates = {} if pool_rates is None else pool_rates
    if pool not in rates:
        rates[pool] = arms.arm(pool).counts(step, memory).rate
    return Candidate(place, arm, arm.counts(step, memory), rates[pool], tasks)


TaskSampler = Callable[[Ask], Sequence[TaskChoice]]
"""Returns at most `count` tasks that are not under way, none twice."""
GroupTerms = Callable[[Candidate, TaskChoice, random.Random], TaskChoice]
"""Returns the choice with other samples and turns, or with an opponent.

The samples and turns that it gets are never None: the task, the sampler or the run set them. A
limit of 0 means no limit.
"""


def checked_choices(ask: Ask, choices: object) -> Sequence[TaskChoice]:
    """Return a sampler's choices after a check. Raises `ResultMalformed`."""
    if not isinstance(choices, Sequence) or not all(isinstance(c, TaskChoice) for c in choices):
        raise ResultMalformed(f"{choices!r:.80}", "a list of TaskChoice")
    if len(choices) > ask.count:
        raise ResultMalformed(f"{len(choices)} choices", f"at most {ask.count}")
    places = [choice.place for choice in choices]
    if twice := [place for place in places if places.count(place) > 1]:
        raise ResultMalformed(f"place {twice[0]} twice", "different tasks")
    for choice in choices:
        if not isinstance(choice.place, int) or not 0 <= choice.place < len(ask.tasks):
            raise ResultMalformed(f"place {choice.place!r:.80}", f"one below {len(ask.tasks)}")
        if not ask.is_free(choice.place):
            task_id = ask.candidate(choice.place).task_id
            raise ResultMalformed(f"task {task_id}", "one without a group under way")
        checked_choice(choice)
    return choices


def checked_rate(rate: object) -> float:
    """Return a predicted rate after a check. Raises `ResultMalformed`."""
    if not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise ResultMalformed(f"{rate!r:.80}", "a rate from 0 to 1")
    return float(rate)


def checked_terms(candidate: Candidate, choice: object) -> TaskChoice:
    """Return the terms' choice after a check. Raises `ResultMalformed`."""
    checked = checked_choice(choice)
    offered: set[int | None] = {None}
    if (opponents := candidate.opponents) is not None:
        offered |= {opponents.newest, opponents.present, *(each.version for each in opponents.past)}
    if checked.opponent not in offered:
        raise ResultMalformed(f"opponent {checked.opponent}", "a version that may be shown")
    return checked


def checked_choice(choice: object) -> TaskChoice:
    """Return a choice after checking its numbers. Raises `ResultMalformed`."""
    if not isinstance(choice, TaskChoice):
        raise ResultMalformed(f"{choice!r:.80}", "a TaskChoice")
    for name, least in (("samples", 1), ("turn_limit", 0), ("opponent", 0)):
        value = getattr(choice, name)
        if value is not None and not (isinstance(value, int) and least <= value < 2**31):
            raise ResultMalformed(f"{name} {value!r:.80}", f"a whole number, {least} or more")
    if strange := [name for name in (*choice.arms, *choice.figures) if not isinstance(name, str)]:
        raise ResultMalformed(f"the name {strange[0]!r:.80}", "a text")
    for name, figure in choice.figures.items():
        if not isinstance(figure, int | float) or not math.isfinite(figure):
            raise ResultMalformed(f"figure {name} {figure!r:.80}", "a finite number")
    return choice
