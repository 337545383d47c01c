"""A range of tokens: arrays of equal length, cut anywhere, with the messages of its turns."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from seamlessflow.console.views.session.page import twin
from seamlessflow.console.views.session.token_range import RangeRefused, TokenRange, token_range
from seamlessflow.schemas import records as r
from tests.builders.console.explained_sessions import (
    ANSWERED,
    ENDED,
    OPENED,
    READY,
    STEP,
    WHOLE,
    committed,
    explanation,
    rows_of,
)
from tests.builders.records import sessions
from tests.builders.records.content import ids, message

COLUMNS = ("ids", "logprobs", "advantages", "versions", "workers", "nodes", "mask", "reasons")


def spell(tokens: Sequence[int]) -> str:
    return "".join(chr(ord("a") + token) for token in tokens)


def as_json(part: TokenRange) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(twin(part))
    return loaded


def test_a_range_has_each_fact_of_its_tokens() -> None:
    tokens = explanation(WHOLE, [READY, committed(2)], {STEP: [rows_of(0, 3, 4)]})
    part = as_json(token_range(tokens, 0, 5, spell))
    assert part["ids"] == [1, 2, 3, 4, 5]
    assert part["logprobs"] == [None, None, -0.25, -0.25, -0.25]
    assert part["advantages"] == [None, None, 1.0, 1.0, None]
    assert part["versions"] == [-2, -2, 0, 0, 0]
    assert part["workers"] == [-1, -1, 0, 0, 0]
    assert part["nodes"] == [0, 0, 1, 1, 1]
    assert part["mask"] == [False, False, True, True, True]
    assert dict(zip(part["texts"]["ids"], part["texts"]["texts"], strict=True))[3] == "d"


def test_ranges_put_together_are_the_whole() -> None:
    tokens = explanation(WHOLE, [READY, committed(2)], {STEP: [rows_of(0, 3, 4)]})
    whole = as_json(token_range(tokens, 0, 5))
    parts = [as_json(token_range(tokens, begin, end)) for begin, end in ((0, 1), (1, 3), (3, 5))]
    for column in COLUMNS:
        assert [value for part in parts for value in part[column]] == whole[column]


def test_each_token_has_the_event_that_brought_it() -> None:
    turn = (
        *ANSWERED[:2],
        sessions.progressed(ids(3), "a"),
        sessions.completed(ids(4, 5), "a", token_offset=1),
    )
    events = token_range(explanation([OPENED, *turn, *ENDED]), 1, 5).events
    assert events.begins.tolist() == [1, 2, 3]
    assert events.places == ("", "sessions:0:3", "sessions:0:4")


def test_a_span_between_two_versions_says_which_ones() -> None:
    span = r.VersionSpan(start=0, version_min=3, version_max=5)
    turn = (*ANSWERED[:2], sessions.completed(ids(4, 5), "a", spans=(span,)))
    part = token_range(explanation([OPENED, *turn, *ENDED]), 0, 4)
    assert part.versions.tolist() == [-2, -2, -1, -1]
    assert part.inexact == ((2, 3, 5),)


def test_messages_stand_beside_the_tokens_of_their_turn() -> None:
    asked = sessions.started("a", new_messages=(message("user", "what is 2 + 2?"),))
    tokens = explanation([OPENED, asked, *ANSWERED[1:], *ENDED])
    (of_turn,) = token_range(tokens, 0, 5).messages
    assert of_turn.turn == "a"
    assert [(row.role, row.text) for row in of_turn.messages] == [
        ("user", "what is 2 + 2?"),
        ("assistant", "hello"),
    ]


@pytest.mark.parametrize(("begin", "end"), [(-1, 2), (3, 2), (0, 6)])
def test_a_range_that_the_session_does_not_have_is_refused(begin: int, end: int) -> None:
    with pytest.raises(RangeRefused, match=f"from={begin}&to={end} is no range of the session's 5"):
        token_range(explanation(WHOLE), begin, end)


def test_a_range_may_be_empty() -> None:
    assert as_json(token_range(explanation([OPENED]), 0, 0))["ids"] == []
