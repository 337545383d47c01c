"""Interventions: answers in a request that no policy sampled, marked where they are rendered."""

from collections.abc import Sequence
from dataclasses import replace

import orjson
import pytest

from seamlessflow.consumers.trajectories.matching.match import Match, intervenes
from seamlessflow.consumers.trajectories.sessions.session_state import session_of, state_of
from seamlessflow.schemas.records import TurnStarted
from seamlessflow.trainer.data.chains import intervened_turns
from tests.builders.records.content import ids, message
from tests.builders.trajectories.conversation import Conversation, calling, result
from tests.builders.trajectories.session_builder import finished

USER = message("user", "play")
EXPERT = message("assistant", "an expert's move")


def move(number: int) -> bytes:
    """Return the answer of a turn."""
    return message("assistant", f"move {number}")


def state(number: int) -> bytes:
    """Return what the game shows behind a move."""
    return message("user", f"state {number}")


def played(conversation: Conversation, history: list[bytes], numbers: Sequence[int]) -> None:
    """Let the policy answer these turns; add its answers and the states behind them."""
    for number in numbers:
        conversation.ask(f"t{number}", *history)
        history.append(conversation.answer(f"t{number}", ids(number, 0), move(number)))
        history.append(state(number))


def intervened(conversation: Conversation) -> dict[str, bool]:
    return {name: turn.started.intervened for name, turn in conversation.session.turns.items()}


def test_answers_of_others_at_turns_5_to_7_are_marked_once_in_the_tree() -> None:
    conversation, history = Conversation(), [USER]
    played(conversation, history, range(1, 5))
    for number in range(5, 8):
        history += [message("assistant", f"expert {number}"), state(number)]
    played(conversation, history, range(8, 10))
    assert [name for name, marked in intervened(conversation).items() if marked] == ["t8"]
    made = finished(conversation)
    marked = [node for node in made.nodes if node.intervened]
    assert [(node.turn_id, node.origin) for node in marked] == [("t8", "prompt")]
    assert intervened_turns(made) == 4


def test_a_session_in_which_only_the_policy_spoke_has_none() -> None:
    conversation, history = Conversation(), [USER]
    played(conversation, history, range(1, 4))
    assert not any(intervened(conversation).values())
    assert intervened_turns(finished(conversation)) == 0


def test_an_answer_in_place_of_a_sampled_one_leaves_that_without_a_label() -> None:
    conversation, history = Conversation(), [USER]
    played(conversation, history, [1, 2])
    patched = [*history[:-2], EXPERT, state(2)]
    played(conversation, patched, [3])
    assert intervened(conversation) == {"t1": False, "t2": False, "t3": True}
    assert intervened_turns(finished(conversation)) == 2


def test_an_answer_that_an_earlier_request_had_is_no_new_intervention() -> None:
    """An agent that renders its whole history anew in each turn."""
    conversation = Conversation()
    conversation.ask("a", USER, EXPERT, state(0))
    conversation.answer("a", ids(7, 0), move(1))
    conversation.ask("b", message("user", "another way to say it"), EXPERT, state(1))
    assert intervened(conversation) == {"a": True, "b": False}


def test_a_sampled_answer_in_a_changed_history_is_none() -> None:
    conversation, history = Conversation(), [USER]
    played(conversation, history, [1])
    conversation.ask("b", message("user", "another beginning"), move(1), state(1))
    assert conversation.turn("b").started.match_rule in ("render", "root")
    assert not conversation.turn("b").started.intervened


def test_a_call_that_comes_back_with_other_text_beside_it_is_a_sampled_one() -> None:
    conversation = Conversation()
    conversation.ask("a", USER)
    conversation.answer("a", ids(10, 0), calling("a"), finish_reason="tool_calls")
    said = calling("a").replace(b'"content":null', b'"content":"I read"')
    conversation.ask("b", message("user", "changed"), said, result("a"))
    assert not conversation.turn("b").started.intervened
    exact = Conversation(strictness="exact")
    exact.ask("a", USER)
    exact.answer("a", ids(10, 0), calling("a"), finish_reason="tool_calls")
    exact.ask("b", message("user", "changed"), said, result("a"))
    assert exact.turn("b").started.intervened


@pytest.mark.parametrize(("rules", "marked"), [(1, False), (2, True)])
def test_a_session_that_began_by_older_rules_goes_on_without_marks(
    rules: int, marked: bool
) -> None:
    conversation, history = Conversation(), [USER]
    played(conversation, history, [1])
    session = conversation.session
    session.opened = replace(session.opened, fold_version=rules)
    conversation.ask("b", *history, EXPERT, state(2))
    assert conversation.turn("b").started.intervened is marked


def test_an_answer_that_repeats_a_sampled_one_in_another_place_is_an_intervention() -> None:
    conversation, history = Conversation(), [USER]
    played(conversation, history, [1])
    history += [move(1), state(2)]
    played(conversation, history, [3])
    assert intervened(conversation) == {"t1": False, "t3": True}
    history += [EXPERT, state(4)]
    played(conversation, history, [5])
    history += [EXPERT, state(6)]
    played(conversation, history, [7, 8])
    assert [name for name, marked in intervened(conversation).items() if marked] == [
        *("t3", "t5", "t7"),
    ]


def test_answers_behind_a_shortened_history_are_sampled_ones() -> None:
    conversation, history = Conversation(), [USER]
    played(conversation, history, range(1, 5))
    conversation.ask("short", *history[:3], *history[5:])
    assert conversation.turn("short").started.match_rule == "extend"
    assert not conversation.turn("short").started.intervened


def test_a_session_that_was_idle_goes_on_as_one_that_was_not() -> None:
    conversation, history = Conversation(), [USER]
    played(conversation, history, [1])
    conversation.ask("b", *history, EXPERT, state(2))
    conversation.answer("b", ids(8, 0), move(2))
    again = session_of(state_of(conversation.session))
    assert [turn.started.intervened for turn in again.turns.values()] == [False, True]
    for session in (conversation.session, again):
        # All of it rendered anew, and the same with another answer.
        assert not intervenes(session, rendered(USER, move(1), EXPERT, move(2)), "arguments")
        assert intervenes(session, rendered(USER, move(1), EXPERT, move(3)), "arguments")


def rendered(*messages: bytes) -> Match:
    """Return the match of messages that are rendered anew."""
    return Match("render", 0, 1, ids(1), "prompt", ids(1), b"", messages)


def test_a_plain_prompt_has_none_whatever_its_text_is() -> None:
    conversation = Conversation()
    text = orjson.dumps({"content": EXPERT.decode()})
    (event, *_) = conversation.ask("a", text, raw=True)
    assert isinstance(event, TurnStarted)
    assert not event.intervened
