"""Rules that a worker uses: those of the release, and the user's that it names itself."""

from dataclasses import replace

import pytest

from seamlessflow.infra.user_functions import FunctionUnusable, source_sha256
from seamlessflow.infra.worker.control_rule import ControlSection
from seamlessflow.producers.rollout.control.controlled import ControlledTurn
from seamlessflow.producers.rollout.control.registry import UsedRules
from seamlessflow.producers.rollout.settings import RolloutSection
from seamlessflow.schemas.records import TurnControl
from tests.builders.rollout.controlled import ENDS, MARKS, asked, control

NAME = "examples.methods.control:Unlikely"
MINE = ControlSection(name=NAME, settings={"below": -1.0})
RULE = TurnControl(name=NAME, settings=MINE.settings_json, sha256=source_sha256(NAME))


def controlled(rule: TurnControl | None, used: UsedRules | None = None) -> ControlledTurn | None:
    return (used or UsedRules()).controlled(asked(rule), MARKS, ENDS)


def error(rule: TurnControl, used: UsedRules | None = None) -> str:
    turn = controlled(rule, used)
    assert turn is not None
    return turn.error


def test_a_turn_without_a_rule_is_not_controlled() -> None:
    assert controlled(None, UsedRules(MINE)) is None


def test_a_rule_of_the_release_needs_no_settings_of_the_worker() -> None:
    assert error(control("repetition", period=8)) == ""


def test_the_user_s_rule_is_used_where_name_settings_and_file_are_the_same() -> None:
    used = UsedRules(MINE)
    assert error(RULE, used) == ""
    for other in (
        replace(RULE, sha256="of another file"),
        replace(RULE, settings=b'{"below":-2.0}'),
        replace(RULE, name="examples.methods.control:Other"),
    ):
        assert "another file or other settings" in error(other, used)


def test_no_record_makes_a_worker_import_a_module() -> None:
    for name in (NAME, "antigravity:fly"):
        assert "another file or other settings" in error(replace(RULE, name=name))
        assert "another file or other settings" in error(replace(RULE, name=name, sha256=""))


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (control("surprise"), "KeyError"),
        (control("confidence", floor=1.0), "floor 1 can never stop a turn"),
        (replace(control("repetition"), version=2), "version 2 of the rules"),
    ],
)
def test_a_rule_that_this_worker_cannot_use_lets_turns_go_on_without_it(
    rule: TurnControl, why: str
) -> None:
    assert why in error(rule)


def test_a_budget_needs_tokens_that_begin_and_end_thinking() -> None:
    turn = UsedRules().controlled(asked(control("budget", tokens=3)), None, ENDS)
    assert turn is not None
    assert "no single token begins and ends the thinking" in turn.error


def test_a_worker_whose_rule_cannot_be_imported_does_not_start() -> None:
    with pytest.raises(FunctionUnusable, match="no function nothing"):
        UsedRules(ControlSection(name="examples.methods.control:nothing"))


def test_settings_are_checked_before_a_run() -> None:
    with pytest.raises(ValueError, match="period is 0"):
        RolloutSection(control=ControlSection(name="repetition", settings={"period": 0}))
    with pytest.raises(ValueError, match="name is none"):
        RolloutSection(control=ControlSection(settings={"period": 4}))
    assert RolloutSection(control=MINE).control == MINE
