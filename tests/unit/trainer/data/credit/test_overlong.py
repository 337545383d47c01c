"""Long sessions: the punishment in their returns, and truncated ones that are masked."""

from collections import Counter
from dataclasses import replace

import pytest
from pydantic import ValidationError

from seamlessflow.trainer.credit import CreditSettings
from seamlessflow.trainer.data.advantages import ReturnRules, estimator
from seamlessflow.trainer.data.batch import Batch, Prepared, prepare
from seamlessflow.trainer.data.credit.overlong import OverlongRules, punishment
from seamlessflow.trainer.data.figures.of_batch import facts
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.sessions import ValidSession
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.step_methods import step_methods
from seamlessflow.trainer.steps.inputs import batch_rules
from tests.builders.trainer.groups import NOW, RULES, session

SOFT = OverlongRules(length=10, cache=4)
PLAIN = replace(RULES, estimator=estimator("grpo_unscaled", ReturnRules()))


def truncated(name: str, reward: float) -> ValidSession:
    finished = session(name, reward)
    return replace(finished, source=replace(finished.source, limit="max_tokens"))


def advantages(prepared: Prepared) -> dict[str, list[float]]:
    return {
        chain.session_id: chain.tokens.advantages_T[chain.tokens.trained_T].tolist()
        for chain in prepared.chains
    }


@pytest.mark.parametrize(
    ("tokens", "expected"), [(0, 0), (6, 0), (7, -0.25), (8, -0.5), (10, -1), (99, -1)]
)
def test_the_punishment_grows_over_the_cache_and_then_stays(tokens: int, expected: float) -> None:
    assert punishment(tokens, SOFT) == expected
    assert punishment(tokens, replace(SOFT, weight=0.5)) == expected / 2


def test_without_a_length_nothing_is_punished() -> None:
    assert punishment(10**9, OverlongRules()) == 0


def test_the_punishment_reaches_advantages_but_no_figure_of_rewards() -> None:
    group = Group("g", (session("a", 1.0, length=3), session("b", 1.0, length=8)))
    prepared = prepare(group, NOW, replace(PLAIN, overlong=SOFT))
    assert advantages(prepared) == {"a": [0.25] * 3, "b": [-0.25] * 8}
    assert prepared.filtered == ""

    figures = facts(Batch(0, (prepared,)), NOW)
    assert (figures["reward_mean"], figures["reward_std"], figures["pass_at/1"]) == (1.0, 0.0, 1.0)
    assert (figures["overlong_share"], figures["overlong_penalty"]) == (0.5, 0.25)


def test_a_truncated_session_leaves_the_loss_but_not_the_mean_of_its_group() -> None:
    group = Group("g", (session("a", 1.0), truncated("b", 0.0)))
    masked = OverlongRules(masked=("max_tokens",))
    prepared = prepare(group, NOW, replace(PLAIN, overlong=masked))
    assert advantages(prepared) == {"a": [0.5] * 3}
    assert (prepared.masked(), prepared.trainable) == (Counter(overlong=3), 3)

    figures = facts(Batch(0, (prepared,)), NOW)
    assert (figures["overlong_share"], figures["overlong_penalty"]) == (0.5, 0.0)
    assert (figures["masked/overlong"], figures["reward_mean"]) == (3, 0.5)


def test_a_session_that_another_limit_ended_is_trained() -> None:
    group = Group("g", (session("a", 1.0), truncated("b", 0.0)))
    prepared = prepare(group, NOW, replace(PLAIN, overlong=OverlongRules(masked=("time",))))
    assert set(advantages(prepared)) == {"a", "b"}


def test_a_group_of_truncated_sessions_alone_is_dropped_with_the_reason() -> None:
    group = Group("g", (truncated("a", 1.0), truncated("b", 0.0)))
    masked = OverlongRules(masked=("max_tokens",))
    prepared = prepare(group, NOW, replace(PLAIN, overlong=masked))
    assert prepared.dropped == ("filtered", "untrainable; masked tokens: 6 overlong")


def test_metrics_of_long_sessions_are_told_only_where_there_are_any() -> None:
    group = Group("g", (session("a", 1.0), session("b", 0.0)))
    prepared = prepare(group, NOW, replace(PLAIN, overlong=SOFT))
    assert not any(name.startswith("overlong") for name in facts(Batch(0, (prepared,)), NOW))


@pytest.mark.parametrize(
    ("overlong", "fault"),
    [
        ({"length": 4, "cache": 4}, "must be less than length"),
        ({"length": 4}, "set together"),
        ({"cache": 4}, "set together"),
        ({"length": 4, "cache": 0}, "greater than or equal to 1"),
        ({"masked": ["length"]}, "Input should be"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    overlong: dict[str, object], fault: str
) -> None:
    with pytest.raises(ValidationError, match=fault):
        CreditSettings(overlong=overlong)


def test_returns_of_distillation_cannot_be_shaped() -> None:
    overlong = {"length": 4, "cache": 2}
    with pytest.raises(ValidationError, match="distill sees none"):
        CreditSettings(advantage="distill", teacher="t", overlong=overlong)


def test_what_is_done_with_long_sessions_is_a_method_of_the_step() -> None:
    overlong = {"length": 8, "cache": 2, "masked": ["context"]}
    settings = TrainerSettings(trainer={"overlong": overlong})
    methods = [method for method in step_methods(settings) if method.kind == "overlong"]
    assert [method.name for method in methods] == ["punishment", "mask"]
    assert all(method.settings_hash for method in methods)
    assert not [method for method in step_methods(TrainerSettings()) if method.kind == "overlong"]
    rules = batch_rules(settings).overlong
    assert (rules.length, rules.cache, tuple(rules.masked)) == (8, 2, ("context",))
