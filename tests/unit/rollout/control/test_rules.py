"""Rules of the release: verdicts by hand, and settings that they refuse."""

from collections.abc import Iterable, Sequence
from math import exp, log
from typing import Any

import pytest
from pytest import approx

from seamlessflow.producers.rollout.control.contract import (
    SampledToken,
    TurnFacts,
    TurnRule,
    TurnStop,
    state_json,
)
from seamlessflow.producers.rollout.control.rules import (
    Budget,
    Confidence,
    Repetition,
    confidence_and_entropy,
    rule_named,
)
from tests.builders.rollout.controlled import even

TURN = TurnFacts(prompt_length=3, max_tokens=100, temperature=1.0, tools=False)


def verdict(rule: TurnRule, tokens: Iterable[SampledToken]) -> tuple[int, TurnStop] | None:
    """Return the place of the token behind which the rule ends a turn, from 1, and its verdict."""
    state: Any = rule.begin(TURN)
    for number, token in enumerate(tokens, 1):
        state, stop = rule.step(state, token)
        if stop is not None:
            return number, stop
    return None


def guessed(counts: Sequence[int]) -> list[SampledToken]:
    """Return tokens, each one of so many equally likely ones."""
    return [SampledToken(0, -log(count), even(count), False) for count in counts]


def read(token_ids: Sequence[int]) -> list[SampledToken]:
    return [SampledToken(token_id, -0.5, (), False) for token_id in token_ids]


def thought(flags: str) -> list[SampledToken]:
    return [SampledToken(0, -0.5, (), flag == "t") for flag in flags]


def test_confidence_and_entropy_of_a_distribution_by_hand() -> None:
    top = [log(0.6), *[log(0.1)] * 4, *[-100.0] * 15]
    confidence, entropy = confidence_and_entropy(top)
    assert confidence == approx(-(log(0.6) + 4 * log(0.1)) / 5)
    assert entropy == approx(-0.6 * log(0.6) - 0.4 * log(0.1))


def test_the_likeliest_tokens_are_a_distribution_of_their_own() -> None:
    half = [logprob + log(0.5) for logprob in even(10)]
    assert list(confidence_and_entropy(half)) == approx([log(10), log(10)])


def test_a_token_that_an_engine_leaves_out_counts_as_very_unlikely() -> None:
    confidence, entropy = confidence_and_entropy([0.0, *[float("-inf")] * 19])
    assert confidence == approx(80)
    assert entropy == approx(0, abs=1e-9)


def test_a_turn_stops_when_four_tokens_are_below_the_floor() -> None:
    rule = Confidence(floor=1.7)
    assert verdict(rule, guessed([20, 5, 5, 5, 5, 5])) == (5, TurnStop("floor"))
    assert verdict(rule, guessed([5, 5, 5])) is None
    assert verdict(rule, guessed([5, 5, 5, 20] * 5)) is None


def test_a_turn_stops_when_its_tail_fell_three_times_and_is_low() -> None:
    # Means of 8: ln 20 = 2.996, then 2.960, 2.924, 2.888, 2.852, 2.816.
    falling = guessed([20] * 8 + [15] * 8)
    assert verdict(Confidence(tail=2.9), falling) == (11, TurnStop("tail"))
    assert verdict(Confidence(tail=2.85), falling) == (13, TurnStop("tail"))
    assert verdict(Confidence(tail=2.7), falling) is None


def test_a_low_tail_that_does_not_fall_stops_nothing() -> None:
    rule = Confidence(tail=2.9)
    assert verdict(rule, guessed([5] * 30)) is None
    assert verdict(rule, guessed([20] * 8 + [15, 15, 20, 20, 15, 15])) is None


def test_a_turn_stops_when_its_entropy_rose_three_times_and_leaps() -> None:
    rule = Confidence(spike=0.5)
    # Entropies ln 2, ln 2, ln 3, ln 4, ln 8: the last is 1.11 above the mean of those before.
    assert verdict(rule, guessed([2, 2, 3, 4, 8])) == (5, TurnStop("spike"))
    assert verdict(rule, guessed([2, 2, 4, 3, 8])) is None
    assert verdict(Confidence(spike=1.12), guessed([2, 2, 3, 4, 8])) is None
    assert verdict(rule, guessed([2, 3, 4, 8])) is None


def test_a_block_that_repeats_four_times_stops_the_turn() -> None:
    rule = Repetition(period=3, times=4)
    assert verdict(rule, read([9, 8, *[1, 2, 3] * 4])) == (14, TurnStop("repeats"))
    assert verdict(rule, read([*[1, 2, 3] * 3, 1, 2, 4] * 3)) is None
    assert verdict(rule, read(list(range(100)))) is None


def test_a_block_longer_than_the_period_is_no_repetition() -> None:
    assert verdict(Repetition(period=3, times=2), read([1, 2, 3, 4] * 9)) is None


def test_a_short_row_of_one_token_is_no_repetition() -> None:
    rule = Repetition(period=16, times=4)
    assert verdict(rule, read([1, *[0] * 15, 1])) is None
    assert verdict(rule, read([1, *[0] * 20])) == (17, TurnStop("repeats"))


def test_a_turn_may_think_for_as_many_tokens_as_its_budget() -> None:
    rule = Budget(tokens=3, ends="session")
    assert verdict(rule, thought(".ttt....")) is None
    assert verdict(rule, thought(".tttt...")) == (5, TurnStop("thinking", "session"))


@pytest.mark.parametrize("rule", [Confidence(floor=2), Repetition(period=256), Budget(tokens=9)])
def test_a_state_fits_into_a_record(rule: TurnRule) -> None:
    state: Any = rule.begin(TURN)
    for number in range(1000):
        token = SampledToken(999_999, -1.0 / (number + 3), even(20), False)
        state, _ = rule.step(state, token)
        state_json(state)


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("confidence", {"floor": 1.6}, r"floor 1.6 can never .* ln 5 = 1.609"),
        ("confidence", {"tail": 1.0}, r"tail 1 can never .* ln 5 = 1.609"),
        ("confidence", {"spike": 3.5}, r"spike 3.5 is not from 0 to ln 20 = 2.996"),
        ("confidence", {}, "needs floor, tail or spike"),
        ("confidence", {"ceiling": 2}, "unexpected keyword argument 'ceiling'"),
        ("confidence", {"floor": "low"}, "not supported between"),
        ("repetition", {"period": 0}, "period is 0"),
        ("repetition", {"period": 300}, "period is 300"),
        ("repetition", {"times": 1}, "times is 1"),
        ("repetition", {"ends": "run"}, "ends is 'run'"),
        ("budget", {"tokens": 0.5}, "tokens is 0.5"),
        ("budget", {}, "missing"),
    ],
)
def test_settings_that_never_stop_a_turn_are_refused_by_name(
    name: str, settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        rule_named(name, settings)


def test_no_distribution_is_less_confident_than_an_even_one_over_five() -> None:
    for weights in ([5, 4, 3, 2, 1], [1] * 5, [9, 1, 1, 1, 1]):
        top = [log(weight / sum(weights)) for weight in weights] + [-100.0] * 15
        confidence, _ = confidence_and_entropy(top)
        assert exp(confidence) >= 5 - 1e-9
