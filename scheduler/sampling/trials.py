"""Trials of a user's sampler, terms and predictions, each on a small input. Pure.

A trial returns the function's result, so that two can be compared. It raises the function's errors,
and `ResultMalformed`.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from seamlessflow.scheduler.sampling.ask import (
    Ask,
    OfferedOpponents,
    Opponent,
    TaskChoice,
    checked_choices,
    checked_rate,
    checked_terms,
)
from seamlessflow.scheduler.sampling.forks import ParentTurn
from seamlessflow.scheduler.sampling.index import indexed
from seamlessflow.scheduler.state.arms import Arm, Arms
from seamlessflow.scheduler.state.ledger import source_arm, task_arm
from seamlessflow.scheduler.tasks.source import TaskRow

_TASKS = 6
_OPPONENTS = OfferedOpponents([Opponent(0, 0.75), Opponent(4, 0.5)], newest=5, present=4, groups=1)


def small_ask() -> Ask:
    """Return a question for two out of six tasks on two levels, some drawn before."""
    rows = tuple(
        TaskRow(f"task-{number}", b'{"id":"task"}', {"level": str(number % 2)})
        for number in range(_TASKS)
    )
    arms = Arms()
    for number, passed in ((0, 4), (1, 0), (2, 2)):
        arm = Arm(
            draws=1,
            ready=1,
            longest=3,
            passed=float(passed),
            failed=4.0 - passed,
            last_passed=passed,
            last_counted=4,
            equal=int(passed != 2),
        )
        arms.put(task_arm(f"task-{number}"), arm)
    source = source_arm("train")
    arms.put(source, Arm(draws=3, ready=3, won=1, lost=1, passed=6.0, failed=6.0))
    return Ask(
        count=2,
        draw=3,
        samples=4,
        random=random.Random(0),  # nosec B311 # repeatable draws
        source="train",
        pool=arms.arm(source),
        tasks=indexed(rows, "train", None),
        arms=arms,
        step=1,
    )


def try_sampler(function: Callable[..., Any]) -> list[TaskChoice]:
    """Call a function for the seam `pacing.sampler.name`."""
    ask = small_ask()
    return list(checked_choices(ask, function(ask)))


def try_terms(function: Callable[..., Any]) -> TaskChoice:
    """Call a function for the seam `pacing.terms.name`."""
    ask = small_ask()
    choice = TaskChoice(place=0, samples=4, turn_limit=0)
    candidate = replace(ask.candidate(0), opponents=_OPPONENTS)
    return checked_terms(candidate, function(candidate, choice, ask.random))


def try_prediction(function: Callable[..., Any]) -> float:
    """Call a function for the seam `pacing.sampler.predict`."""
    return checked_rate(function(small_ask().candidate(0)))


def try_fork_prediction(function: Callable[..., Any]) -> list[float]:
    """Call a function for the seam `pacing.forks_predict`, for two turns in a failed session."""
    candidate = small_ask().candidate(0)
    pool = candidate.tasks.pool(candidate.place)
    return [
        checked_rate(
            function(
                ParentTurn(
                    turn=turn,
                    turns_left=4 - turn,
                    length=120,
                    parent_return=0.0,
                    pool=pool,
                    candidate=candidate,
                )
            )
        )
        for turn in (2, 3)
    ]
