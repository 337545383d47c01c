"""Choice of the turns at which recorded sessions are forked."""

from typing import Any

import pytest

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.recorded.fork.places import ForkRule, appended_message
from seamlessflow.schemas.identity import forked_turn_id
from tests.builders.records.content import ids, message
from tests.builders.records.sessions import completed, started
from tests.builders.trajectories.conversation import recorded
from tests.builders.trajectories.session_builder import SessionBuilder, session_after

TURN = "8d8f1870f6fafdc0d4"
CHECK = appended_message("check your work")


@pytest.mark.parametrize(
    ("rule", "chosen"),
    [
        (ForkRule(turn="b"), ["b"]),
        (ForkRule(turn="1"), ["a"]),
        (ForkRule(turn="3"), ["c"]),
        (ForkRule(turn="last"), ["c"]),
        (ForkRule(turn="0"), []),
        (ForkRule(turn="4"), []),
        (ForkRule(turn="x"), []),
        (ForkRule(after_tool_result="first"), ["b"]),
        (ForkRule(after_tool_result="last"), ["c"]),
        (ForkRule(after_tool_result="every"), ["b", "c"]),
        (ForkRule(before_compaction=True), []),
    ],
)
def test_turns_are_chosen_by_hand_or_by_rule(rule: ForkRule, chosen: list[str]) -> None:
    assert rule.turns(recorded().session) == chosen


def conversation(*turns: dict[str, Any]) -> SessionBuilder:
    """Return a session of turns that are called a, b, c ..."""
    built = session_after()
    for name, changes in zip("abcdef", turns, strict=False):
        built.apply(started(name, **changes), completed(ids(9), name))
    return built


LONG = {"prompt_length": 9, "match_rule": "extend"}
EDITED = {"match_rule": "render", "match_detail": "edited_history"}


@pytest.mark.parametrize(
    ("turns", "chosen"),
    [
        ([LONG, LONG | {"parent_turn": "a"}, EDITED | {"prompt_length": 3}], ["b"]),
        ([LONG, EDITED | {"prompt_length": 12}], []),
        ([LONG, EDITED | {"match_detail": "bridge_refused", "prompt_length": 3}], []),
        ([LONG, EDITED | {"prompt_length": 3, "module": "planner"}], []),
        # The agent asked for something else in between, and went on.
        ([LONG, EDITED | {"prompt_length": 3}, LONG | {"parent_turn": "a"}], []),
    ],
    ids=["compacted", "longer", "refused", "another module", "a question beside"],
)
def test_a_compaction_follows_the_last_turn_of_a_longer_history(
    turns: list[dict[str, Any]], chosen: list[str]
) -> None:
    assert ForkRule(before_compaction=True).turns(conversation(*turns).session) == chosen


@pytest.mark.parametrize(
    ("rule", "option"),
    [
        (ForkRule(), "--turn"),
        (ForkRule(turn="1", before_compaction=True), "--turn"),
        (ForkRule(turn="0"), "--turn: 0 is not a turn's id, its number from 1, or last"),
        (ForkRule(turn="foo"), "--turn: foo is not"),
        (ForkRule(turn="-1"), "--turn: -1 is not"),
        (ForkRule(turn="1", behind="answer"), "--behind"),
        (ForkRule(turn="1", mode="playback", appended=(CHECK,)), "--mode"),
    ],
)
def test_rules_that_contradict_themselves_are_refused(rule: ForkRule, option: str) -> None:
    with pytest.raises(SettingsRejected, match=option):
        rule.check()


@pytest.mark.parametrize(
    "turn", ["1", "12", "last", "255d22838a2344ca17.1", forked_turn_id("s", 10), TURN]
)
def test_a_turn_is_named_by_its_id_its_number_or_as_the_last(turn: str) -> None:
    ForkRule(turn=turn).check()


def test_an_appended_message_is_of_the_user() -> None:
    assert message("user", "check your work") == CHECK
