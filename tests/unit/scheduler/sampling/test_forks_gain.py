"""The gain of live forks on made-up tasks: groups with passes and failures, at equal tokens.

500 tasks have true rates of passes from Beta(0.3, 0.3). A session has four turns of equal length,
and passes if all are right, each by itself. What goes on from a turn has the outcome of the turns
before it. A group that goes on from a session is compared with that session too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from seamlessflow.schemas import records as r
from seamlessflow.schemas.arrays import Float64s
from tests.builders.records import control
from tests.builders.scheduler.offers import ForkingRun, offering

TASKS = 500
TURNS = 4
GROUPS = 16
SAMPLES = 8
SEEDS = (0, 1, 2)
BUDGET = 24_000
"""Turns that are sampled: those of 750 groups without forks."""


class Played(NamedTuple):
    """Groups of a run, and those with passes and failures."""

    groups: int
    mixed: int
    tasks: int
    """Tasks with such a group."""


@dataclass
class MadeUpRun:
    """A run whose sessions end as made-up rates say; results come with the step."""

    run: ForkingRun
    generator: np.random.Generator
    rates: Float64s
    """Chance of a right turn, by task."""
    errors: dict[str, int] = field(default_factory=dict)
    """First wrong turn by session; one behind the last: it passed."""

    def sampled(self, group: r.GroupAdmitted) -> tuple[int, list[float]]:
        """Play a group; return its sampled turns, and the returns that are compared."""
        place = group.fork_at
        begin = 1 if place is None else place.turn
        # What was wrong before the turn stays wrong.
        before = TURNS + 1 if place is None else self.errors[place.session_id]
        before = before if before < begin else TURNS + 1
        returns = []
        for sample in range(group.group_size):
            right = self.generator.random(TURNS - begin + 1) < self.rates[place_in(group.task_id)]
            error = begin + (len(right) if right.all() else int(right.argmin()))
            self.errors[f"{group.group_id}.{sample}.0"] = min(before, error)
            returns.append(float(min(before, error) > TURNS))
        self.run.happen(
            offering(group.group_id, *returns, turns=TURNS), control.consumed(group.group_id)
        )
        compared = returns if place is None else [*returns, place.parent_return]
        return group.group_size * (TURNS - begin + 1), compared


def place_in(task_id: str) -> int:
    return int(task_id.removeprefix("train-"))


def play(seed: int, share: float, sampler: Mapping[str, Any]) -> Played:
    """Play a run until so many turns are sampled."""
    generator = np.random.default_rng(seed)
    rates = generator.beta(0.3, 0.3, TASKS) ** (1 / TURNS)
    run = ForkingRun(share, tasks=TASKS, sampler=sampler, groups=GROUPS, size=SAMPLES, seed=seed)
    made_up = MadeUpRun(run, generator, rates)
    turns, step, groups = 0, 0, 0
    mixed: list[str] = []
    while turns < BUDGET:
        for group in run.admit():
            sampled, returns = made_up.sampled(group)
            turns += sampled
            groups += 1
            mixed += [group.task_id] * (len(set(returns)) > 1)
        step += 1
        run.happen(control.published(step, step=step))
    return Played(groups, len(mixed), len(set(mixed)))


TRACE: Mapping[str, Any] = {"name": "trace"}


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [{}, TRACE], ids=["shuffled", "trace"])
def test_groups_that_go_on_are_more_often_mixed(sampler: Mapping[str, Any]) -> None:
    for seed in SEEDS:
        without, forked = play(seed, 0.0, sampler), play(seed, 0.25, sampler)
        assert forked.mixed > without.mixed, (seed, without, forked)
