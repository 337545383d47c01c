"""Lengths of the clock engine's answers."""

from dataclasses import replace
from statistics import fmean, pstdev

import pytest

from seamlessflow.infra.device_model.lengths import LengthsSection
from seamlessflow.producers.rollout.clock_engine.lengths import AnswerLengths
from seamlessflow.producers.rollout.engine.request import Request
from tests.builders.rollout.clock_turns import request

MANY = 4000


def turn(session: str, prompt: int = 3, completion: int = 0, choice: int = 0) -> Request:
    asked = request("any", range(prompt), range(completion))
    asked.sampling = replace(asked.sampling, session=session, choice=choice)
    return asked


def test_lengths_have_the_mean_and_the_limit_that_are_set() -> None:
    found = AnswerLengths(LengthsSection(turn_tokens=60, spread=0.5, most_tokens=200))

    ends = [found.of(turn(f"group-{number}.0.0")) for number in range(MANY)]

    assert fmean(ends) == pytest.approx(60, rel=0.03)
    assert min(ends) >= 1
    assert max(ends) <= 200


def test_without_a_spread_all_are_equal() -> None:
    found = AnswerLengths(LengthsSection(turn_tokens=60, spread=0))

    assert {found.of(turn(f"group-{number}.0.0")) for number in range(50)} == {60}


def test_a_turn_that_is_repeated_or_goes_on_elsewhere_is_as_long() -> None:
    section = LengthsSection(turn_tokens=3000, spread=1)
    engines = AnswerLengths(section, seed=7), AnswerLengths(section, seed=7)

    ends = {each.of(turn("g.0.0", completion=held)) for each in engines for held in (0, 1, 9)}

    assert len(ends) == 1


def test_each_place_in_a_session_and_each_seed_has_a_draw_of_its_own() -> None:
    section = LengthsSection(turn_tokens=1e6, spread=1, most_tokens=10**9)
    found, other = AnswerLengths(section, seed=7), AnswerLengths(section, seed=8)

    turns = [turn("g.0.0"), turn("g.0.0", prompt=4), turn("g.0.0", choice=1), turn("g.0.1")]
    ends = {found.of(of) for of in turns} | {other.of(of) for of in turns}

    assert len(ends) == 8


def test_the_sessions_of_a_group_share_the_part_that_is_set() -> None:
    shared = AnswerLengths(LengthsSection(prompt_effect=1))
    alone = AnswerLengths(LengthsSection(prompt_effect=0))

    def spread_of_a_group(found: AnswerLengths) -> float:
        return pstdev(found.of(turn(f"g-1.{sample}.0")) for sample in range(50))

    assert spread_of_a_group(shared) == 0 < spread_of_a_group(alone)
