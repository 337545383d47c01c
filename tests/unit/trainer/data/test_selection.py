"""Selections against plain searches, and what becomes of sessions that are not selected."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamlessflow.trainer.data.advantages import ReturnRules, estimator
from seamlessflow.trainer.data.batch import Batch, Prepared, prepare
from seamlessflow.trainer.data.credit.batches import BATCH_ESTIMATORS
from seamlessflow.trainer.data.credit.phase import with_advantages
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.figures.of_batch import facts
from seamlessflow.trainer.data.methods import MethodFailed
from seamlessflow.trainer.data.selection import (
    SELECTIONS,
    UNSELECTED,
    SelectionRules,
    balanced,
    extremes,
    max_variance,
)
from tests.builders.trainer.groups import NOW, RULES, group

RETURNS = st.lists(st.floats(-5, 5), min_size=1, max_size=9)


def sessions(returns: Sequence[float]) -> list[Episode]:
    return [
        Episode(value, np.zeros(1), np.zeros(2, np.int32), lambda: np.arange(2) - 1)
        for value in returns
    ]


def kept(returns: Sequence[float], verdicts: Sequence[bool]) -> list[float]:
    return [value for value, verdict in zip(returns, verdicts, strict=True) if verdict]


@given(RETURNS, st.integers(0, 5), st.integers(1, 5))
def test_extremes_are_the_best_and_the_worst(returns: list[float], best: int, worst: int) -> None:
    verdicts = extremes(sessions(returns), SelectionRules(best=best, worst=worst), random.Random())
    ordered = sorted(returns)
    expected = ordered
    if len(returns) > best + worst:
        expected = ordered[:worst] + ordered[len(ordered) - best :]
    assert sorted(kept(returns, verdicts)) == expected


@given(RETURNS, st.integers(1, 9))
def test_max_variance_is_that_of_the_best_of_all_subsets(returns: list[float], keep: int) -> None:
    verdicts = max_variance(sessions(returns), SelectionRules(keep=keep), random.Random())
    count = min(keep, len(returns))
    assert sum(verdicts) == count
    largest = max(float(np.var(subset)) for subset in combinations(returns, count))
    assert np.var(kept(returns, verdicts)) == pytest.approx(largest, abs=1e-9)


@given(RETURNS, st.integers(1, 9), st.integers(0, 9))
def test_balanced_has_a_pass_and_a_failure_where_there_are_both(
    returns: list[float], keep: int, seed: int
) -> None:
    verdicts = balanced(sessions(returns), SelectionRules(keep=keep), random.Random(seed))
    chosen = kept(returns, verdicts)
    assert len(chosen) == min(keep, len(returns))
    if len(chosen) > 1:
        assert {value >= 1 for value in chosen} == {value >= 1 for value in returns}


def test_balanced_draws_by_its_generator_alone() -> None:
    group_of_sessions = sessions([0, 0, 0, 0, 1, 1, 1, 1])
    rules = SelectionRules(keep=4)
    drawn = [balanced(group_of_sessions, rules, random.Random(seed)) for seed in range(20)]
    assert drawn == [balanced(group_of_sessions, rules, random.Random(seed)) for seed in range(20)]
    assert len(set(map(tuple, drawn))) > 10


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_group_no_larger_than_what_is_kept_is_trained_whole(name: str) -> None:
    few = sessions([0.0, 1.0, 1.0])
    assert list(SELECTIONS[name](few, SelectionRules(), random.Random())) == [True] * 3


def prepared(name: str = "extremes", **rules: object) -> Prepared:
    chosen = SelectionRules(name=name, best=1, worst=1, **rules)  # type: ignore[arg-type]
    return prepare(group("g", 1.0, 0.5, 0.25, 0.0), NOW, replace(RULES, selection=chosen))


def advantages_of(made: Prepared) -> dict[str, float]:
    return {
        chain.session_id: float(chain.tokens.advantages_T[chain.tokens.trained_T][0])
        for chain in made.chains
    }


def test_sessions_that_are_not_selected_are_counted_and_not_trained() -> None:
    whole = prepare(group("g", 1.0, 0.5, 0.25, 0.0), NOW, RULES)
    made = prepared()
    assert [chain.session_id for chain in made.chains] == [
        whole.chains[0].session_id,
        whole.chains[-1].session_id,
    ]
    left = sum(chain.trained() for chain in whole.chains[1:-1])
    assert made.masked() - whole.masked() == Counter({UNSELECTED: left})
    assert facts(Batch(3, (made,)), NOW)[f"masked/{UNSELECTED}"] == left
    assert len(made.member(()).sessions) == 4


def test_advantages_compare_the_selected_sessions_or_the_whole_group() -> None:
    names = [chain.session_id for chain in prepared().chains]
    by_grpo = estimator("grpo", ReturnRules())
    whole = [float(a[0]) for a in by_grpo(sessions([1.0, 0.5, 0.25, 0.0]))]
    pair = [float(a[0]) for a in by_grpo(sessions([1.0, 0.0]))]
    rules = replace(RULES, estimator=by_grpo)
    for baseline, expected in [("all", [whole[0], whole[-1]]), ("selected", pair)]:
        chosen = SelectionRules(name="extremes", best=1, worst=1, baseline=baseline)
        made = prepare(group("g", 1.0, 0.5, 0.25, 0.0), NOW, replace(rules, selection=chosen))
        assert advantages_of(made) == pytest.approx(dict(zip(names, expected, strict=True)))


@pytest.mark.parametrize(("baseline", "mean"), [("all", 0.4375), ("selected", 0.5)])
def test_estimators_of_a_batch_see_the_same_sessions(baseline: str, mean: float) -> None:
    batch = Batch(3, (prepared(baseline=baseline),))
    rules = ReturnRules()
    estimated = with_advantages(
        batch, lambda groups: BATCH_ESTIMATORS["grpo_batch"].estimate(groups, rules)
    )
    (first, last) = advantages_of(estimated.groups[0]).values()
    assert first / last == pytest.approx((1 - mean) / -mean)


def test_a_step_that_is_executed_again_selects_the_same_sessions() -> None:
    names = [
        [chain.session_id for chain in prepared("balanced", keep=2, seed=seed).chains]
        for seed in (0, 0, 1, 2, 3, 4, 5)
    ]
    assert names[0] == names[1]
    assert len(set(map(tuple, names))) > 1


def test_a_selection_that_fails_is_named() -> None:
    with pytest.raises(MethodFailed, match=r"selection os:nothing failed: .* no function nothing"):
        prepared("os:nothing")
