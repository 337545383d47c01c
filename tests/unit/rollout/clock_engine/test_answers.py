"""Answers of the clock engine, and their lengths."""

from dataclasses import replace
from itertools import pairwise
from statistics import fmean, pstdev

import pytest

from seamlessflow.infra.device_model.settings import LengthsSection
from seamlessflow.producers.rollout.clock_engine.answers import AnswerLengths, Answers
from seamlessflow.producers.rollout.engine.request import Request
from seamlessflow.schemas.tokens import unpack
from tests.builders.rollout.clock_turns import LIMIT, STOP, TEXT, answers, request

MANY = 4000


def text_from(place: int, tokens: int) -> list[int]:
    return [TEXT[(place + number) % len(TEXT)] for number in range(tokens)]


@pytest.mark.parametrize(
    ("max_tokens", "limit", "stops", "length", "reason"),
    [
        (100, LIMIT, (STOP,), 8, "stop"),
        (8, LIMIT, (STOP,), 8, "stop"),
        (7, LIMIT, (STOP,), 7, "length"),
        (100, 8, (STOP,), 5, "length"),
        (100, LIMIT, (), 100, "length"),
        (100, LIMIT, (STOP, TEXT[0], TEXT[3]), 3, "stop"),
    ],
)
def test_it_ends_where_the_first_reason_is(
    max_tokens: int, limit: int, stops: tuple[int, ...], length: int, reason: str
) -> None:
    asked = request(stops=stops, max_tokens=max_tokens)
    made = answers()

    answer = made.to(asked, limit)

    tokens = list(unpack(made.tokens(answer, 0, answer.length)))
    if len(stops) == 3:  # the first token of the text that stops it, wherever the text begins
        expected = text_from(answer.first, 5)
        length = min(expected.index(TEXT[0]), expected.index(TEXT[3])) + 1
    assert (answer.length, answer.reason) == (length, reason)
    drawn = reason == "stop" and len(stops) == 1
    assert tokens == text_from(answer.first, length - drawn) + [STOP] * drawn


def test_its_parts_are_the_whole() -> None:
    made = answers(40)
    answer = made.to(request(), LIMIT)

    whole = made.tokens(answer, 0, 40)

    cuts = [0, 1, 7, 7, 39, 40]
    parts = [made.tokens(answer, start, end) for start, end in pairwise(cuts)]
    assert b"".join(parts) == whole


def test_prompts_differ_in_where_the_text_begins_and_turns_in_length() -> None:
    made = answers(40, spread=1)

    of_prompts = {made.to(request(prompt=(number,)), LIMIT).first for number in range(50)}
    of_seeds = [made.to(request(seed=number), LIMIT) for number in range(50)]

    assert of_prompts == set(range(len(TEXT)))
    assert len({each.first for each in of_seeds}) == 1
    assert len({each.length for each in of_seeds}) > 20


def test_a_text_must_be_token_ids() -> None:
    for wrong in (b"", b"123"):
        with pytest.raises(ValueError, match="text"):
            Answers(wrong, AnswerLengths(LengthsSection()))


def test_a_completion_beyond_its_length_ends_with_its_next_token() -> None:
    asked = request(completion=range(25))

    assert answers(10).to(asked, LIMIT).length == 26


def turn(session: str, prompt: int = 3, completion: int = 0, choice: int = 0) -> Request:
    asked = request("any", range(prompt), range(completion))
    asked.sampling = replace(asked.sampling, session=session, choice=choice)
    return asked


def test_lengths_have_the_mean_and_the_limit_that_are_set() -> None:
    lengths = AnswerLengths(LengthsSection(turn_tokens=60, spread=0.5, most_tokens=200))

    ends = [lengths.completion_tokens(turn(f"group-{number}.0.0")) for number in range(MANY)]

    assert fmean(ends) == pytest.approx(60, rel=0.03)
    assert min(ends) >= 1
    assert max(ends) <= 200


def test_without_a_spread_all_are_equal() -> None:
    lengths = AnswerLengths(LengthsSection(turn_tokens=60, spread=0))

    assert {lengths.completion_tokens(turn(f"group-{number}.0.0")) for number in range(50)} == {60}


def test_a_turn_that_is_repeated_or_goes_on_elsewhere_is_as_long() -> None:
    section = LengthsSection(turn_tokens=3000, spread=1)
    engines = AnswerLengths(section, seed=7), AnswerLengths(section, seed=7)

    ends = {
        each.completion_tokens(turn("g.0.0", completion=held))
        for each in engines
        for held in (0, 1, 9)
    }

    assert len(ends) == 1


def test_each_place_in_a_session_and_each_seed_has_a_draw_of_its_own() -> None:
    section = LengthsSection(turn_tokens=1e6, spread=1, most_tokens=10**9)
    lengths, other = AnswerLengths(section, seed=7), AnswerLengths(section, seed=8)

    turns = [turn("g.0.0"), turn("g.0.0", prompt=4), turn("g.0.0", choice=1), turn("g.0.1")]
    ends = {lengths.completion_tokens(asked) for asked in turns} | {
        other.completion_tokens(asked) for asked in turns
    }

    assert len(ends) == 8


def test_the_sessions_of_a_group_share_the_part_that_is_set() -> None:
    shared = AnswerLengths(LengthsSection(prompt_effect=1))
    alone = AnswerLengths(LengthsSection(prompt_effect=0))

    def spread_of_a_group(lengths: AnswerLengths) -> float:
        return pstdev(lengths.completion_tokens(turn(f"g-1.{sample}.0")) for sample in range(50))

    assert spread_of_a_group(shared) == 0 < spread_of_a_group(alone)
