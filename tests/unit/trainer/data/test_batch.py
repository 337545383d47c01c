"""From ready groups to a batch: order, staleness, filters, advantages and what is reported."""

from dataclasses import replace
from typing import get_args

import pytest

from seamlessflow.schemas.records import Reward
from seamlessflow.trainer.data.batch import (
    Batch,
    Prepared,
    prepare,
    select,
)
from seamlessflow.trainer.data.credit.returns import weighted
from seamlessflow.trainer.data.figures.of_batch import facts
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.staleness import GroupAdmission, OnStale, StepClock, awaited
from seamlessflow.trainer.settings import TrainerSettings
from seamlessflow.trainer.steps.inputs import batch_rules
from tests.builders.trainer.groups import NOW, RULES, group, session


def advantages(prepared: Prepared) -> list[float]:
    """Return the advantage of each trained token."""
    tokens = [chain.tokens for chain in prepared.chains]
    return [
        value
        for chain_tokens in tokens
        for value in chain_tokens.advantages_T[chain_tokens.trained_T].tolist()
    ]


def test_every_chain_of_a_session_gets_the_sessions_advantage() -> None:
    prepared = prepare(group("g", 1.0, 0.0), NOW, RULES)
    assert advantages(prepared) == pytest.approx([1.0] * 3 + [-1.0] * 3, rel=1e-5)


def test_groups_whose_tokens_are_oldest_come_first() -> None:
    ready = [group("new", 1, 0), group("old", 1, 0, version=2), group("newer", 1, 0)]
    chosen = select(ready, 2, NOW, RULES).chosen
    assert [prepared.group.group_id for prepared in chosen] == ["old", "new"]


def test_stale_tokens_leave_the_loss_and_are_counted() -> None:
    """Holds invariant I5."""
    mixed = Group("g", (session("a", 1.0, version=1, length=5), session("b", 0.0)))
    prepared = prepare(mixed, NOW, RULES)
    assert [chain.session_id for chain in prepared.chains] == ["b"]
    assert (prepared.stale, prepared.longest_stale) == (5, 5)
    assert advantages(prepared) == pytest.approx([-1.0] * 3, rel=1e-5)


def test_a_group_that_is_all_stale_is_dropped() -> None:
    selection = select([group("g", 1, 0, version=1)], 1, NOW, RULES)
    assert selection.chosen == []
    assert selection.dropped[0].dropped is not None
    assert selection.dropped[0].dropped[0] == "stale"


def test_on_stale_drop_gives_up_a_group_with_any_stale_token() -> None:
    mixed = Group("g", (session("a", 1.0, version=1), session("b", 0.0)))
    assert prepare(mixed, NOW, replace(RULES, on_stale="drop")).dropped is not None
    assert prepare(mixed, NOW, RULES).dropped is None


def test_on_stale_correct_leaves_stale_tokens_to_the_loss() -> None:
    prepared = prepare(group("g", 1, 0, version=0), NOW, replace(RULES, on_stale="correct"))
    assert len(prepared.chains) == 2


@pytest.mark.parametrize("on_stale", get_args(OnStale))
def test_tokens_over_the_age_are_counted_however_they_are_treated(on_stale: OnStale) -> None:
    """Holds invariant I5."""
    mixed = Group("g", (session("a", 1.0, version=1, length=5), session("b", 0.0)))
    prepared = prepare(mixed, NOW, replace(RULES, on_stale=on_stale))

    assert prepared.over_age == 5
    assert prepared.stale == (0 if on_stale == "correct" else 5)
    assert facts(Batch(3, (prepared,)), NOW)["tokens_over_age"] == 5


def test_staleness_counts_steps_and_not_version_numbers() -> None:
    after_a_resume = StepClock({7: 3, 9: 3}, now=3)
    assert (after_a_resume.age(7), after_a_resume.age(2)) == (0, 1)
    assert prepare(group("g", 1, 0, version=7), after_a_resume, RULES).stale == 0


def test_groups_without_variance_fill_a_batch_but_not_the_loss() -> None:
    selection = select([group("same", 1, 1), group("g", 1, 0)], 2, NOW, RULES)
    assert [prepared.filtered for prepared in selection.chosen] == ["zero_variance", ""]
    assert selection.chosen[0].chains == ()


def test_a_filter_set_to_drop_leaves_the_place_to_another_group() -> None:
    rules = replace(RULES, filters={"zero_variance": "drop"})
    selection = select([group("same", 1, 1), group("g", 1, 0)], 1, NOW, rules)
    assert [prepared.group.group_id for prepared in selection.chosen] == ["g"]
    assert selection.dropped[0].dropped == ("filtered", "zero_variance")


def test_a_batch_reports_rewards_of_all_its_sessions_and_what_was_lost() -> None:
    old = session("old", 0.0, version=0, length=4)
    groups = [group("same", 1, 1), Group("g", (session("a", 1.0), old))]
    chosen = select(groups, 2, NOW, RULES).chosen
    figures = facts(Batch(3, tuple(chosen)), NOW)
    assert figures["reward_mean"] == 0.75
    assert figures["filtered/zero_variance"] == 0.5
    assert (figures["masked/stale"], figures["tokens_stale_longest"]) == (4, 4)
    assert (figures["tokens_trained"], figures["tokens_masked"]) == (3, 4)
    assert (figures["staleness_mean"], figures["staleness_max"]) == (0, 0)


def test_a_batch_records_all_its_groups_and_sessions() -> None:
    chosen = select([group("same", 1, 1), group("g", 1, 0)], 2, NOW, RULES).chosen
    members = Batch(3, tuple(chosen)).members()
    assert [(member.group_id, member.sessions, member.filtered) for member in members] == [
        ("same", ("same.0.0", "same.1.0"), "zero_variance"),
        ("g", ("g.0.0", "g.1.0"), ""),
    ]


def test_a_batch_waits_for_groups_that_would_be_too_old_for_the_next_step() -> None:
    under_way = {
        "old": GroupAdmission(2, 100),
        "new": GroupAdmission(3, 100),
        "late": GroupAdmission(2, 50),
    }
    assert awaited(under_way, NOW, limit=1, now_ms=60) == ["old"]


@pytest.mark.parametrize(
    ("advantage", "rewards", "filtered"),
    [
        ("grpo_batch", ({"reward": 1.0}, {"reward": 1.0}), "zero_variance"),
        ("grpo_batch", ({"reward": 1.0}, {"reward": 0.0}), ""),
        ("gdpo", ({"reward": 1.0, "style": 0.0}, {"reward": 0.0, "style": 2.0}), ""),
        ("gdpo", ({"reward": 1.0, "style": 1.0}, {"reward": 1.0, "style": 1.0}), "zero_variance"),
        ("reinforce_pp", ({"reward": 1.0}, {"reward": 1.0}), ""),
    ],
)
def test_groups_without_an_advantage_are_filtered_before_the_batch_is_fixed(
    advantage: str, rewards: tuple[dict[str, float], ...], filtered: str
) -> None:
    weights = {name: {"reward": 1.0, "style": 0.5}[name] for name in rewards[0]}
    section = {"advantage": advantage, "rewards": weights}
    rules = batch_rules(TrainerSettings.model_validate({"trainer": section}))
    made = group("g", *(weighted(session_rewards, weights) for session_rewards in rewards))
    named = [
        {name: Reward(value=value, name=name) for name, value in session_rewards.items()}
        for session_rewards in rewards
    ]
    pairs = zip(made.sessions, named, strict=True)
    sessions = tuple(
        replace(session, rewards=session_rewards) for session, session_rewards in pairs
    )
    assert prepare(replace(made, sessions=sessions), NOW, rules).filtered == filtered
