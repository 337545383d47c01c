"""Lengths of the clock engine's answers."""

from statistics import fmean

import pytest

from infra.device_model.lengths import LengthsSection
from producers.rollout.clock_engine.lengths import AnswerLengths

SEEDS = range(4000)


def test_lengths_have_the_mean_and_the_limit_that_are_set() -> None:
    found = AnswerLengths(LengthsSection(turn_tokens=60, spread=0.5, most_tokens=200))

    ends = [found.end(seed, 0) for seed in SEEDS]

    assert fmean(ends) == pytest.approx(60, rel=0.03)
    assert min(ends) >= 1
    assert max(ends) <= 200


def test_without_a_spread_all_are_equal() -> None:
    found = AnswerLengths(LengthsSection(turn_tokens=60, spread=0))

    assert {found.end(seed, 0) for seed in range(50)} == {60}


def test_the_same_seed_ends_at_the_same_token_wherever_an_answer_goes_on() -> None:
    found = AnswerLengths(LengthsSection(turn_tokens=3000, spread=1))

    end = found.end(7, 0)

    assert {found.end(7, offset) for offset in (1, end // 2, end - 1)} == {end}


def test_another_seed_in_the_middle_leaves_the_distribution_as_it_is() -> None:
    found = AnswerLengths(LengthsSection(turn_tokens=60, spread=0.5))

    ends = [found.end(seed, 0) for seed in SEEDS]
    moved = [
        end if end <= 40 else found.end(-1 - seed & 2**64 - 1, 40) for seed, end in enumerate(ends)
    ]

    assert fmean(moved) == pytest.approx(fmean(ends), rel=0.03)
    assert moved != ends


def test_a_completion_beyond_the_limit_ends_with_its_next_token() -> None:
    found = AnswerLengths(LengthsSection(most_tokens=10))

    assert found.end(0, 25) == 26
