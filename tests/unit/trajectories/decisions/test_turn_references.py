"""Requests that name a turn's answer instead of sending it."""

import orjson
import pytest

from seamlessflow.consumers.trajectories.decisions.turn_start import BadRequest, whole_history
from seamlessflow.schemas.identity import turn_reference
from tests.builders.records.commands import request_turn
from tests.builders.records.content import ids
from tests.builders.records.sessions import completed, dispatched, started
from tests.builders.trajectories.session_builder import session_after

USER = b'{"content":"x","role":"user"}'
ANSWER = b'{"content":"hello","role":"assistant"}'


def test_the_answer_stands_where_it_was_named() -> None:
    end = completed(ids(7), "a", message=ANSWER)
    session = session_after(started("a"), dispatched("a"), end).session
    named = orjson.dumps(turn_reference("a", {}))
    command = request_turn("b", messages=(USER, named, USER))
    assert list(whole_history(session, command)) == [USER, ANSWER, USER]


@pytest.mark.parametrize("turn", ["a", "unknown"])
def test_a_turn_without_an_answer_cannot_be_named(turn: str) -> None:
    session = session_after(started("a"), dispatched("a")).session
    named = orjson.dumps(turn_reference(turn, {}))
    with pytest.raises(BadRequest) as refused:
        whole_history(session, request_turn("b", messages=(USER, named)))
    assert refused.value.reason == "item_not_found"
