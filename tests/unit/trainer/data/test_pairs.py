"""Pairs of a group: rules against plain forms, and what becomes of the other sessions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.infra.user_functions import ResultMalformed
from seamlessflow.trainer.data.advantages import no_advantages
from seamlessflow.trainer.data.batch import Prepared, prepare
from seamlessflow.trainer.data.credit.overlong import OverlongRules
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.methods import MethodFailed
from seamlessflow.trainer.data.pairs import (
    UNPAIRED,
    PairRules,
    checked_pairs,
    each_with_each,
    extremes,
)
from seamlessflow.trainer.data.selection import SelectionRules
from tests.builders.trainer.groups import NOW, RULES, group

RETURNS = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5]), max_size=9)


def sessions(returns: Sequence[float]) -> list[Episode]:
    return [
        Episode(value, np.zeros(1), np.zeros(2, np.int32), lambda: np.arange(2) - 1)
        for value in returns
    ]


@given(RETURNS)
def test_extremes_are_the_best_and_the_worst_and_none_of_equal_ones(returns: list[float]) -> None:
    pairs = [(returns[better], returns[worse]) for better, worse in extremes(sessions(returns))]
    different = len(set(returns)) > 1
    assert pairs == ([(max(returns), min(returns))] if different else [])


@given(RETURNS)
def test_each_pass_is_compared_with_each_failure(returns: list[float]) -> None:
    pairs = each_with_each(sessions(returns))
    assert len(set(pairs)) == len(pairs)
    assert len(pairs) == sum(r >= 1 for r in returns) * sum(r < 1 for r in returns)
    assert all(returns[better] >= 1 > returns[worse] for better, worse in pairs)


def prepared(*returns: float, name: str = "extremes", **more: Any) -> Prepared:
    rules = replace(RULES, estimator=no_advantages, pairs=PairRules(name=name), **more)
    return prepare(group("g", *returns), NOW, rules)


def names(made: Prepared) -> list[tuple[str, str]]:
    return [(pair.chosen, pair.rejected) for pair in made.pairs]


def trained(made: Prepared) -> set[str]:
    return {chain.session_id for chain in made.chains}


def test_sessions_without_a_pair_are_counted_and_not_trained() -> None:
    made = prepared(0.5, 0.0, 1.0, 0.25)
    assert names(made) == [("g.2.0", "g.1.0")]
    assert trained(made) == {"g.1.0", "g.2.0"}
    plain = prepare(group("g", 0.5, 0.0, 1.0, 0.25), NOW, RULES)
    lost = sum(chain.trained() for chain in plain.chains) - made.trainable
    assert made.masked() - plain.masked() == Counter({UNPAIRED: lost})


@pytest.mark.parametrize("action", ["count", "drop"])
def test_a_group_without_a_difference_leaves_as_the_filter_says(action: Any) -> None:
    made = prepared(0.5, 0.5, 0.5, filters={"zero_variance": action})
    assert (made.pairs, made.chains) == ((), ())
    assert made.filtered == "zero_variance"
    assert bool(made.dropped) == (action == "drop")


def test_a_group_of_failures_alone_has_nothing_to_train() -> None:
    made = prepared(0.5, 0.25, name="all")
    assert made.filtered == "untrainable"
    assert made.dropped is not None


def test_a_rule_of_the_user_s_own_may_compare_sessions_of_one_return() -> None:
    made = prepared(1.0, 1.0, name=f"{__name__}:first_of_two")
    assert names(made) == [("g.0.0", "g.1.0")]
    assert not made.filtered


def first_of_two(episodes: Sequence[Episode]) -> list[tuple[int, int]]:
    return [(0, 1)]


def test_a_group_that_another_filter_keeps_out_compares_nothing() -> None:
    made = prepared(0.25, 0.0, filters={"spread": "count"}, regularised=True)
    assert made.filtered == "spread"
    assert made.pairs == ()
    assert trained(made) == {"g.0.0", "g.1.0"}, "for the terms of each token"


def test_pairs_are_chosen_among_the_sessions_that_are_selected_and_not_masked() -> None:
    selection = SelectionRules(name="max_variance", keep=2)
    assert names(prepared(2.0, 1.0, 0.0, selection=selection)) == [("g.0.0", "g.2.0")]
    limited = group("g", 2.0, 1.0, 0.0)
    first = limited.sessions[0]
    source = replace(first.source, limit="turns")
    limited = replace(limited, sessions=(replace(first, source=source), *limited.sessions[1:]))
    overlong = OverlongRules(masked=("turns",))
    rules = replace(RULES, pairs=PairRules(name="extremes"), overlong=overlong)
    assert names(prepare(limited, NOW, rules)) == [("g.1.0", "g.2.0")]


@pytest.mark.parametrize(
    "answer", [[(0, 0)], [(0, 3)], [(-1, 0)], [(0, 1, 2)], [(0, 1), (0, 1)]], ids=str
)
def test_an_answer_that_is_no_list_of_pairs_is_refused(answer: Any) -> None:
    with pytest.raises(ResultMalformed, match=r"pairs of two different places below 3, each once"):
        checked_pairs(answer, 3)


def test_places_may_be_numbers_of_numpy() -> None:
    assert checked_pairs([(np.int64(1), np.int32(0))], 2) == [(1, 0)]  # type: ignore[list-item]


def test_a_rule_that_fails_is_named() -> None:
    with pytest.raises(MethodFailed, match=r"pairs os:nothing failed: .* no function nothing"):
        prepared(1.0, 0.0, name="os:nothing")
