"""Live forks: the places from which groups go on, and the samples of each."""

import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, product

import pytest

from seamlessflow.scheduler.sampling.forks import (
    ForkAsk,
    ForkBudget,
    ForkChoice,
    budget,
    divided,
    ends_the_same,
    fork_choices,
)
from seamlessflow.scheduler.state.arms import Arm
from seamlessflow.scheduler.state.offers import Offer, Offers
from seamlessflow.scheduler.tasks.source import TaskRow
from tests.builders.scheduler.sampling import ask_of, passes
from tests.seed import seed

CASES = 300


def differs(same: Sequence[float], counts: Sequence[int]) -> float:
    """Return the sum of the chances that one of so many continuations ends otherwise."""
    total = 0.0
    for chance, count in zip(same, counts, strict=True):
        all_same = 1.0
        for _ in range(count):
            all_same *= chance
        total += 1 - all_same
    return total


def best_sum(same: Sequence[float], samples: int, most: int, groups: int) -> float:
    """Return the largest sum over all divisions among so many places or fewer."""
    return max(
        differs(chosen, counts)
        for size in range(min(groups, len(same)) + 1)
        for chosen in combinations(same, size)
        for counts in product(range(most + 1), repeat=size)
        if sum(counts) <= samples
    )


def offer(name: str, parent_return: float, turns: int = 4, task: int = 0) -> Offer:
    return Offer(
        session_id=name,
        task_id=f"train-{task}",
        parent_return=parent_return,
        turns=turns,
        length=10,
        first_offset=0,
    )


def asked(
    offers: Sequence[Offer],
    tasks: Sequence[Arm],
    most: ForkBudget,
    samples: int = 8,
    seed_of_draw: int = 0,
) -> ForkAsk:
    question = ask_of(tasks)
    places = [int(each.task_id.removeprefix("train-")) for each in offers]
    return ForkAsk(
        offers=[
            (each, question.candidate(place)) for each, place in zip(offers, places, strict=True)
        ],
        rows={f"train-{place}": TaskRow(f"train-{place}", b"{}", {}) for place in places},
        budget=most,
        most=samples,
        random=random.Random(seed_of_draw),
    )


def total(choices: Sequence[ForkChoice]) -> float:
    same = [ends_the_same(c.offer.parent_return, c.figures["rate"]) for c in choices]
    return differs(same, [choice.samples for choice in choices])


@pytest.mark.parametrize("case", range(CASES))
def test_no_other_division_of_the_budget_is_better(case: int) -> None:
    drawn = random.Random(f"{seed} {case}")
    same = [drawn.choice([0.0, 1.0, drawn.random()]) for _ in range(drawn.randint(1, 4))]
    samples, most = drawn.randint(0, 8), drawn.randint(1, 5)
    counts = divided(same, samples, most)
    drawn_case = (seed, case, same, samples, most, counts)
    assert sum(counts) <= samples and max(counts) <= most, drawn_case
    wanted = best_sum(same, samples, most, len(same))
    assert differs(same, counts) == pytest.approx(wanted, abs=1e-9), drawn_case


@pytest.mark.parametrize("case", range(60))
def test_the_places_are_the_best_that_so_few_groups_can_have(case: int) -> None:
    drawn = random.Random(f"places {seed} {case}")
    tasks = [passes(drawn.randint(0, 8), drawn.randint(0, 8)) for _ in range(5)]
    offers = [offer(f"s{n}", drawn.choice([0.0, 1.0, drawn.random()]), 2, n) for n in range(5)]
    most = ForkBudget(drawn.randint(1, 6), drawn.randint(1, 3))
    ask = asked(offers, tasks, most, 3, case)
    choices = fork_choices(ask)
    same = [ends_the_same(each.parent_return, candidate.rate) for each, candidate in ask.offers]
    drawn_case = (seed, case, same, most)
    assert len(choices) <= most.groups and sum(c.samples for c in choices) <= most.samples, (
        drawn_case
    )
    wanted = best_sum(same, most.samples, 3, most.groups)
    assert total(choices) == pytest.approx(wanted, abs=1e-9), drawn_case


def test_the_chance_to_end_the_same_is_that_of_the_formula() -> None:
    assert ends_the_same(1, 0.25) == 0.25
    assert ends_the_same(0, 0.25) == 0.75
    assert ends_the_same(0.5, 0.25) == 0.5


@pytest.mark.parametrize(("parent_return", "same"), [(7.0, 0.25), (-3.0, 0.75)])
def test_a_return_beyond_a_pass_or_a_failure_counts_as_one(
    parent_return: float, same: float
) -> None:
    assert ends_the_same(parent_return, 0.25) == same


def test_a_success_of_a_hard_task_is_preferred_to_its_failures() -> None:
    hard = passes(1, 31)
    offers = [offer("lost", 0.0), offer("won", 1.0), offer("lost-too", 0.0)]
    (choice,) = fork_choices(asked(offers, [hard], ForkBudget(4, 1)))
    assert (choice.offer.session_id, choice.samples) == ("won", 4)
    assert choice.figures["differs"] == pytest.approx(1 - choice.figures["rate"] ** 4)


def test_a_prediction_chooses_the_turn() -> None:
    ask = asked([offer("s", 0.0, turns=5)], [passes(1, 1)], ForkBudget(4, 1))
    (choice,) = fork_choices(ask, predict=lambda seen: 1 / seen.turns_left)
    assert choice.turn == 5


def test_the_same_question_has_the_same_answer() -> None:
    offers = [offer(f"s{number}", number % 2, 6) for number in range(20)]
    first, second = (
        fork_choices(asked(offers, [passes(2, 3)], ForkBudget(9, 3), seed_of_draw=seed))
        for _ in range(2)
    )
    assert first == second, seed


def test_a_turn_is_offered_once_and_the_first_never() -> None:
    session = offer("s", 1.0, turns=4)
    assert session.free_turns == [2, 3, 4]
    assert offer("s", 1.0, turns=1).free_turns == []


@pytest.mark.parametrize(
    ("offers", "credits_left", "allowed"),
    [
        (Offers(samples=96, groups=12), 8, ForkBudget(32, 2)),
        (Offers(samples=96, groups=12), 1, ForkBudget(32, 1)),
        (Offers(samples=128, groups=16, forked_samples=32, forked_groups=4), 8, ForkBudget(0, 0)),
        (Offers(samples=0, groups=0), 8, ForkBudget(0, 0)),
    ],
)
def test_forks_have_what_is_left_of_their_share(
    offers: Offers, credits_left: int, allowed: ForkBudget
) -> None:
    assert budget(offers, Fraction(1, 4), credits_left) == allowed
