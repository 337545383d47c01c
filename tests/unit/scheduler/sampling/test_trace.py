"""`trace`: the samples of all groups as one budget, divided as no other division is better."""

import random
from collections.abc import Iterator, Sequence
from itertools import combinations, product

import pytest

from seamlessflow.scheduler.sampling.ask import TaskChoice
from seamlessflow.scheduler.sampling.samplers import divided, trace, worth
from tests.builders.scheduler.sampling import ask_of, passes

CASES = 300


def divisions(tasks: int, budget: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield all divisions of a budget: 0, or 2 to `most` samples for each task."""
    for counts in product((0, *range(2, most + 1)), repeat=tasks):
        if sum(counts) <= budget:
            yield counts


def chance(rate: float, samples: int) -> float:
    """Return the chance of passes and failures, added up over the numbers of passes."""
    if samples == 0:
        return 0.0
    exact = [1.0]
    for _ in range(samples):
        shifted = [0.0, *(p * rate for p in exact)]
        exact = [
            a + b for a, b in zip([*(p * (1 - rate) for p in exact), 0.0], shifted, strict=True)
        ]
    return sum(exact[1:-1])


def best_sum(rates: Sequence[float], budget: int, most: int, groups: int) -> float:
    """Return the largest sum of chances over all choices of so many groups or fewer."""
    return max(
        sum(chance(rate, count) for rate, count in zip(chosen, counts, strict=True))
        for size in range(min(groups, len(rates)) + 1)
        for chosen in combinations(rates, size)
        for counts in divisions(size, budget, most)
    )


def total(choices: Sequence[TaskChoice]) -> float:
    return sum(chance(choice.figures["rate"], choice.samples or 0) for choice in choices)


def check_division(seed: int) -> None:
    """Compare a division with the best of all; the seed draws tasks and budget."""
    cases = random.Random(seed)
    rates = [cases.choice([0.0, 1.0, cases.random()]) for _ in range(cases.randint(1, 4))]
    budget = cases.randint(0, 8)
    most = cases.randint(2, 8)
    counts = divided(rates, budget, most)
    assert tuple(counts) in set(divisions(len(rates), budget, most)), seed
    got = sum(chance(rate, count) for rate, count in zip(rates, counts, strict=True))
    wanted = best_sum(rates, budget, most, len(rates))
    assert got == pytest.approx(wanted, abs=1e-9), (seed, rates, budget, most, counts)


def check_choices(seed: int) -> None:
    """Compare the chosen groups with all others; the seed draws tasks and budget."""
    cases = random.Random(seed)
    tasks = [passes(cases.randint(0, 9), cases.randint(0, 9)) for _ in range(cases.randint(1, 4))]
    groups = cases.randint(1, 4)
    samples = cases.randint(1, 8 // groups)
    most = cases.choice([None, 2, 3, 8])
    ask = ask_of(tasks, count=groups, samples=samples, seed_of_draw=seed)
    choices = trace(ask, most=most)
    rates = [candidate.rate for candidate in ask.candidates]
    counts = [choice.samples or 0 for choice in choices]
    assert len(choices) <= groups and sum(counts) <= groups * samples, seed
    assert all(2 <= count <= (most or 2 * samples) for count in counts), seed
    wanted = best_sum(rates, groups * samples, most or 2 * samples, groups)
    assert total(choices) == pytest.approx(wanted, abs=1e-9), (seed, tasks, groups, samples, most)


def test_a_division_is_as_good_as_the_best_of_all() -> None:
    for seed in range(CASES):
        check_division(seed)


def test_no_other_groups_are_better_than_those_that_it_chooses() -> None:
    for seed in range(CASES):
        check_choices(seed)


def test_a_hard_task_gets_more_samples_than_one_that_passes_half_the_time() -> None:
    choices = trace(ask_of([passes(50, 50), passes(4, 96)], count=2))
    samples = {choice.place: choice.samples for choice in choices}
    assert samples == {0: 5, 1: 11}
    assert [choice.figures["samples"] for choice in choices] == [c.samples for c in choices]


def test_greedy_is_not_optimal_and_this_division_is() -> None:
    rates = [0.5, 0.5]
    # Two tasks of 2 samples have 1.0; greedily one of 3 has 0.75, and 1 sample is left.
    assert divided(rates, 5, 3) == [3, 2] or divided(rates, 5, 3) == [2, 3]
    assert divided(rates, 4, 3) == [2, 2]


def test_a_single_sample_and_a_sure_task_are_worth_nothing() -> None:
    assert [worth(0.3, 1), worth(0.0, 9), worth(1.0, 9)] == pytest.approx([0, 0, 0])
    assert divided([0.0, 1.0], 8, 8) == [0, 0]
    assert divided([0.5], 1, 8) == [0]
