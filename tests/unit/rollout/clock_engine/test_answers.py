"""Answers of the clock engine."""

from itertools import pairwise

import pytest

from seamlessflow.infra.device_model.lengths import LengthsSection
from seamlessflow.producers.rollout.clock_engine.answers import Answers
from seamlessflow.producers.rollout.clock_engine.lengths import AnswerLengths
from seamlessflow.schemas.tokens import unpack
from tests.builders.rollout.clock_turns import LIMIT, STOP, TEXT, answers, request


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

    found = made.to(asked, limit)

    tokens = list(unpack(made.tokens(found, 0, found.length)))
    if len(stops) == 3:  # the first token of the text that stops it, wherever the text begins
        expected = text_from(found.first, 5)
        length = min(expected.index(TEXT[0]), expected.index(TEXT[3])) + 1
    assert (found.length, found.reason) == (length, reason)
    drawn = reason == "stop" and len(stops) == 1
    assert tokens == text_from(found.first, length - drawn) + [STOP] * drawn


def test_its_parts_are_the_whole() -> None:
    made = answers(40)
    found = made.to(request(), LIMIT)

    whole = made.tokens(found, 0, 40)

    cuts = [0, 1, 7, 7, 39, 40]
    parts = [made.tokens(found, start, end) for start, end in pairwise(cuts)]
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
