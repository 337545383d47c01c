"""The list of sessions, and the search in it."""

from typing import Any

import pytest

from seamlessflow.console.log.moment import Moment
from seamlessflow.console.views.query import Query, QueryRejected
from seamlessflow.console.views.sessions import SessionsPage, session_query, sessions_page
from seamlessflow.schemas import records as r
from tests.builders.console.memory_log import history_of, items_of
from tests.builders.records import sessions
from tests.builders.records.content import ids


def life(session: str, value: float, **changes: Any) -> list[Any]:
    return [
        sessions.opened(session_id=session, **changes),
        sessions.rewarded(value, session_id=session),
        sessions.closed(session_id=session),
        sessions.finalized(session_id=session),
    ]


def span(first: int, last: int) -> r.VersionSpan:
    return r.VersionSpan(start=0, version_min=first, version_max=last)


EVENTS = [
    sessions.claimed(),
    *life("g-1.0.0", 0.0, group_id="g-1", task_id="add"),
    *life("g-1.1.0", 1.0, group_id="g-1", task_id="add"),
    *life("g-2.0.0", 0.5, group_id="g-2", task_id="multiply"),
    sessions.opened(session_id="g-2.1.0", group_id="g-2", task_id="multiply", agent="harness"),
    sessions.started(session_id="g-2.1.0"),
    sessions.dispatched(session_id="g-2.1.0"),
    sessions.progressed(ids(1), session_id="g-2.1.0", spans=(span(3, 4),)),
    sessions.interrupted(ids(2), session_id="g-2.1.0", token_offset=1, spans=(span(6, 6),)),
]
DROPPED = {"g-1": "stale"}


def shown(query: str = "", moment: Moment | None = None, events: Any = EVENTS) -> SessionsPage:
    history, _ = history_of(items_of("sessions", events))
    parts = dict(part.split("=") for part in query.split("&") if part)
    picture = history.picture(moment)
    return sessions_page(picture, session_query(Query(parts)), lambda name: DROPPED.get(name, ""))


def names(page: SessionsPage) -> list[str]:
    return [line.row.session_id for line in page.lines]


def test_the_newest_session_comes_first() -> None:
    assert names(shown()) == ["g-2.1.0", "g-2.0.0", "g-1.1.0", "g-1.0.0"]


@pytest.mark.parametrize(
    "query, found_names",
    [
        ("group=g-1", ["g-1.1.0", "g-1.0.0"]),
        ("session=.1.", ["g-2.1.0", "g-1.1.0"]),
        ("task=mult", ["g-2.1.0", "g-2.0.0"]),
        ("status=open", ["g-2.1.0"]),
        ("status=finalized", ["g-2.0.0", "g-1.1.0", "g-1.0.0"]),
        ("least=0.5", ["g-2.0.0", "g-1.1.0"]),
        ("least=0&most=0.4", ["g-1.0.0"]),
        ("purpose=evaluate", []),
        ("agent=harness", ["g-2.1.0"]),
        ("version=4", ["g-2.1.0"]),
        ("version=6", ["g-2.1.0"]),
        ("version=5", []),
        ("reason=stale", ["g-1.1.0", "g-1.0.0"]),
        ("skip=1&count=2", ["g-2.0.0", "g-1.1.0"]),
    ],
)
def test_a_search_finds_what_fits(query: str, found_names: list[str]) -> None:
    assert names(shown(query)) == found_names


def test_counts_are_of_all_that_fit() -> None:
    page = shown("count=1")
    assert (page.total, page.matching, len(page.lines)) == (4, 4, 1)
    assert page.statuses == {"complete": 3, "open": 1}
    assert page.reward_mean == 0.5


def test_an_earlier_moment_has_fewer_sessions_and_earlier_states() -> None:
    page = shown(moment=Moment("sessions", 0, 6))
    assert names(page) == ["g-1.1.0", "g-1.0.0"]
    assert (page.lines[0].row.status, page.lines[0].reward) == ("open", 1.0)


def test_turns_tokens_and_hand_overs_are_counted() -> None:
    events = [
        sessions.claimed(),
        sessions.opened(),
        sessions.started("a"),
        sessions.dispatched("a", 1, worker="w"),
        sessions.dispatched("a", 2, worker="v"),
        sessions.completed(ids(1), "a", dispatch=1, worker="w"),
        sessions.completed(ids(1, 2, 3), "a", dispatch=2, worker="v"),
    ]
    (line,) = shown(events=events).lines
    assert (line.row.turns, line.row.tokens, line.row.hand_overs) == (1, 3, 1)
    assert line.waits_for == "agent"


def test_a_search_finds_why_a_session_ended() -> None:
    ended = {"status": "truncated", "reason": "the context is full", "limit": "context"}
    events = [sessions.claimed(), sessions.opened(), sessions.closed(**ended)]
    for reason in ("is full", "context"):
        assert len(shown(f"reason={reason}", events=events).lines) == 1


def test_an_event_of_an_older_epoch_does_not_count() -> None:
    events = [sessions.claimed(2), sessions.opened(epoch=1)]
    assert shown(events=events).lines == ()


def test_thousands_of_sessions_stay_in_order() -> None:
    events = [sessions.claimed(), *(sessions.opened(session_id=f"s{n}") for n in range(2_000))]
    page = shown("skip=1500&count=2", events=events)
    assert names(page) == ["s499", "s498"]
    assert page.matching == 2_000


@pytest.mark.parametrize("query", ["least=much", "skip=-1", "count=0", "skip=1e3"])
def test_a_wrong_part_of_a_query_is_named(query: str) -> None:
    with pytest.raises(QueryRejected, match=query.split("=")[0]):
        shown(query)
