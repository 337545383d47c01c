"""`by_success`: samples and turns of a group by what came of its task's earlier ones."""

import random

import pytest

from seamlessflow.scheduler.sampling.ask import Candidate, TaskChoice
from seamlessflow.scheduler.sampling.samplers import by_success
from tests.builders.scheduler.sampling import ask_of, passes

SURE = 4_000_000
"""Sessions behind which the rate is the true one."""


def candidate(rate: float, longest: int = 0) -> Candidate:
    passed = round(rate * SURE)
    return ask_of([passes(passed, SURE - passed, longest=longest)]).candidate(0)


def choice(samples: int = 8, turn_limit: int = 0) -> TaskChoice:
    return TaskChoice(place=0, samples=samples, turn_limit=turn_limit)


def terms(
    task: Candidate, chosen: TaskChoice, least: int = 2, exempt: float = 0.0
) -> tuple[int | None, int | None]:
    """Return samples and limit of turns, exempt from the latter by `exempt`."""
    changed = by_success(task, chosen, random.Random(0), least=least, exempt=exempt)
    assert (changed.place, changed.figures) == (chosen.place, chosen.figures)
    return changed.samples, changed.turn_limit


@pytest.mark.parametrize(
    ("rate", "samples"),
    [(0.0, 8), (0.5, 8), (0.6, 8), (0.65, 7), (0.72, 6), (0.8, 5), (0.88, 4), (0.95, 3), (1.0, 2)],
)
def test_a_task_that_passes_often_gets_fewer_samples(rate: float, samples: int) -> None:
    # 8 - 6 (p - 0.6) / 0.4, to the nearest whole number
    assert terms(candidate(rate), choice())[0] == samples


def test_the_least_number_of_samples_is_a_setting() -> None:
    assert [terms(candidate(1.0), choice(), least=least)[0] for least in (1, 4, 8)] == [1, 4, 8]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("rate", [0.0, 0.8, 0.9, 1.0])
def test_a_small_group_gets_no_more_samples_than_it_has(size: int, rate: float) -> None:
    samples, _ = terms(candidate(rate), choice(samples=size), least=3)
    assert samples == size


@pytest.mark.parametrize(
    ("longest", "limit", "changed"), [(0, 0, 0), (0, 9, 9), (5, 0, 5), (5, 9, 5), (12, 9, 9)]
)
def test_the_limit_of_turns_is_that_of_the_longest_session_that_passed(
    longest: int, limit: int, changed: int
) -> None:
    assert terms(candidate(0.5, longest), choice(turn_limit=limit))[1] == changed


def test_exempt_groups_have_the_limit_of_the_run_so_that_it_can_grow() -> None:
    assert terms(candidate(0.5, 5), choice(turn_limit=9), exempt=1.0)[1] == 9
    source = random.Random(3)
    limits = [
        by_success(candidate(0.5, 5), choice(turn_limit=9), source).turn_limit for _ in range(2_000)
    ]
    assert set(limits) == {5, 9}
    assert limits.count(9) / 2_000 == pytest.approx(0.1, abs=0.02)
