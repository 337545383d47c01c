"""A session by the recorded rules and by others, as `replay merge --diff` has it."""

from collections.abc import Sequence

import pytest

from seamlessflow.console.views.compare.rules import (
    MOST_TURNS,
    RulesCompared,
    rules_compared,
    rules_query,
)
from seamlessflow.console.views.query import Query, QueryRejected
from seamlessflow.recorded.merge.rules import RECORDED
from seamlessflow.schemas.records import Record, Reward
from tests.builders.console.explained_sessions import logged
from tests.builders.console.masked_session import MASKED, TRAINED, masked_session, turn
from tests.builders.records import sessions
from tests.builders.records.content import ids

SAMPLED = TRAINED + sum(MASKED.values())


def compared(
    events: Sequence[Record] = (), late: Sequence[Reward] = (), /, **rules: str
) -> RulesCompared:
    query = rules_query(Query({"session": "s", **rules}))
    items = logged("sessions", events or masked_session())
    shown = rules_compared(items, query, late, " --out runs/mine")
    assert shown is not None
    return shown


def masked(shown: RulesCompared) -> dict[str, int]:
    return {row.name: row.after for row in shown.masked if row.after is not None and row.after}


def test_without_other_rules_both_sides_are_the_recorded_ones() -> None:
    shown = compared()
    assert (shown.effects, shown.command, shown.changed, shown.open) == ([], "", 0, False)
    assert {row.name: row.before for row in shown.masked} == MASKED == masked(shown)
    by_name = {row.name: row.after for row in shown.tokens}
    assert (by_name["of them sampled"], by_name["of them trained"]) == (SAMPLED, TRAINED)
    assert shown.names == ["correct", "format"]


@pytest.mark.parametrize(
    ("part", "value", "reason", "turn_id"),
    [
        ("siblings", "all", "abandoned", "a"),
        ("train_inexact", "1", "inexact_top_p", "c"),
        ("train_undelivered", "1", "undelivered", "d"),
    ],
)
def test_a_rule_of_masks_trains_the_tokens_that_it_masked(
    part: str, value: str, reason: str, turn_id: str
) -> None:
    shown = compared(**{part: value})
    (effect,) = shown.effects
    assert (effect.trained_more, effect.trained_less) == (MASKED[reason], 0)
    assert effect.masked == {reason: -MASKED[reason]}
    assert masked(shown) == {name: n for name, n in MASKED.items() if name != reason}
    assert shown.changed == 1
    (changed, *_) = shown.turns
    assert (changed.turn, changed.recorded.masked, changed.other.masked) == (turn_id, reason, "")
    assert (changed.recorded.trained, changed.other.trained) == (0, MASKED[reason])


def test_each_rule_is_compared_by_itself_and_all_together() -> None:
    shown = compared(siblings="all", train_inexact="1", train_undelivered="0")
    labels = [(effect.rule, effect.trained_more, effect.none) for effect in shown.effects]
    assert labels == [
        ("--train-inexact", 2, False),
        ("--mask-undelivered", 0, True),
        ("--siblings all", 1, False),
        ("all together", 3, False),
    ]


def test_a_purpose_masks_all() -> None:
    shown = compared(purpose="eval")
    (effect,) = shown.effects
    assert effect.trained_less == TRAINED
    assert shown.purposes == ("train", "eval")


def test_branches_by_tokens_move_a_turn() -> None:
    shown = compared(threads="tokens")
    (effect,) = shown.effects
    assert effect.turns_moved == 1
    assert effect.prompt_tokens == -2, "1 and 3 stand in the tree already"
    moved = next(each for each in shown.turns if each.turn == "c")
    assert (moved.recorded.behind, moved.other.behind) == ("nothing", "answer of b")


def test_a_return_is_a_further_reward() -> None:
    shown = compared(**{"return": "correct=1, format=0.2"})
    (effect,) = shown.effects
    assert (effect.rule, effect.rewards) == ("--return correct=1 --return format=0.2", 1)
    by_name = {row.name: row for row in shown.rewards}
    assert by_name["reward"].recorded is None
    assert by_name["reward"].other == pytest.approx(1.1)
    assert (by_name["correct"].recorded, by_name["correct"].other) == (1.0, 1.0)


def test_a_late_reward_changes_the_status() -> None:
    end = (sessions.closed(judges=("kind",)), sessions.finalized(reason="judge_failed"))
    late = [Reward(name="kind", value=0.5, source="judge")]
    shown = compared(masked_session(*end), late, late_rewards="1")
    assert shown.statuses == ("unrewarded", "complete")
    assert shown.late == 1
    (effect,) = shown.effects
    assert effect.statuses == ["unrewarded to complete"]
    assert effect.rule == "--late-rewards"
    assert compared(late_rewards="1").late == 0
    assert compared().late is None


def test_a_session_under_way_is_shown_as_it_stands() -> None:
    shown = compared(masked_session()[:-2], train_inexact="1")
    assert shown.open
    assert shown.statuses == ("open", "open")
    assert [effect.trained_more for effect in shown.effects] == [2]


def test_a_session_without_its_beginning_is_none() -> None:
    items = logged("sessions", masked_session())
    query = rules_query(Query({"session": "s"}))
    assert rules_compared(items[2:], query, (), "") is None
    assert rules_compared([], query, (), "") is None


def test_of_many_turns_those_that_change_come_first() -> None:
    many = [event for n in range(MOST_TURNS + 5) for event in turn(f"t{n}", ids(n), ids(1))]
    events = masked_session()
    shown = compared([*events[:-2], *many, *events[-2:]], train_inexact="1")
    assert (shown.turns[0].turn, shown.changed) == ("c", 1)
    assert (len(shown.turns), shown.left_out) == (MOST_TURNS, 5 + 4)


def test_the_command_shows_the_same_in_a_terminal() -> None:
    shown = compared(
        **{"return": "correct=1", "fold_version": "2", "threads": "tokens"},
        **{"train_inexact": "0", "train_undelivered": "1", "siblings": "all", "late_rewards": "1"},
    )
    assert shown.command == (
        "seamlessflow replay merge s --out runs/mine --diff --mask-inexact --train-undelivered "
        "--siblings all --fold-version 2 --threads tokens --return correct=1 --late-rewards"
    )


@pytest.mark.parametrize(
    ("part", "value", "reason"),
    [
        ("fold_version", "99", "fold_version=99: must be between 1 and"),
        ("train_inexact", "yes", "train_inexact=yes: must be one of 1, 0"),
        ("siblings", "some", "siblings=some: must be one of continued, all"),
        ("purpose", "explore", "purpose=explore: must be one of train, eval"),
        ("threads", "x", "threads=x: must be one of recorded, tokens"),
        ("return", "correct", "return=correct: correct is not NAME=WEIGHT"),
        ("return", "correct=inf", "return=correct=inf: a weight must be a finite number"),
        ("late_rewards", "x", "late_rewards=x: must be one of 1, 0"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(part: str, value: str, reason: str) -> None:
    with pytest.raises(QueryRejected, match=reason):
        rules_query(Query({"session": "s", part: value}))


def test_empty_parts_are_the_recorded_rules() -> None:
    parts = {"train_inexact": "", "siblings": "", "return": "", "fold_version": ""}
    query = rules_query(Query({"session": "s", **parts}))
    assert (query.rules, query.parts, query.with_late) == (RECORDED, {}, False)
