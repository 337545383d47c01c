"""The list of sessions, and the search in it."""

from typing import Any

import pytest

from seamlessflow.console.log.moment import Moment
from seamlessflow.console.views.query import Query, QueryRejected
from seamlessflow.console.views.sessions import (
    SessionsPage,
    session_query,
    session_training,
    sessions_page,
)
from seamlessflow.schemas import records as r
from tests.builders.console.course import lineage
from tests.builders.console.memory_log import history_of, items_of
from tests.builders.records import control, sessions
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


def grouped(*names: str, filtered: str = "") -> r.StepGroup:
    return r.StepGroup(group_id=names[0][:3], sessions=names, filtered=filtered)


TRAINED = [
    sessions.claimed(),
    *life("a-1.0.0", 1.0, group_id="a-1"),
    *life("a-1.1.0", 1.0, group_id="a-1"),
    *life("b-1.0.0", 1.0, group_id="b-1"),
    *life("c-1.0.0", 1.0, group_id="c-1"),
    *life("c-1.1.0", 1.0, group_id="c-1", sample=1),
    *life("d-1.0.0", 1.0, group_id="d-1"),
    *life("e-1.0.0", 1.0, group_id="e-1", purpose="evaluate"),
    *life("f-1.0.0", 1.0, group_id="f-1"),
    *life("g-1.0.0", 1.0, group_id="g-1"),
    sessions.opened(session_id="g-1.1.0", group_id="g-1"),
]
ON_CONTROL = [
    control.committed(
        0,
        [grouped("a-1.0.0", "a-1.1.0"), grouped("b-1.0.0", filtered="zero_variance")],
        policy="policy",
        trained_tokens={"a-1.0.0": 7},
    ),
    control.dropped("c-1", "stale"),
    control.sample_failed("c-1", 1, 0),
    control.dropped("d-1", "expired"),
    control.committed(1, [grouped("f-1.0.0")], policy="policy", trained_tokens={"f-1.0.0": 1}),
    control.committed(1, [grouped("f-1.0.0")], policy="policy", trained_tokens={"f-1.0.0": 1}),
    lineage("b", "a", 1),
]


def with_training(query: str = "", end: int = len(ON_CONTROL)) -> SessionsPage:
    history, _ = history_of([*items_of("sessions", TRAINED), *items_of("control", ON_CONTROL)])
    parts = dict(part.split("=") for part in query.split("&") if part)
    course = history.course
    return sessions_page(
        history.picture(None),
        session_query(Query(parts)),
        lambda group: course.drop_reason(group, end),
        lambda row: session_training(row, course, end),
    )


def test_a_session_has_the_step_that_trained_it_or_why_none_did() -> None:
    lines = with_training().lines
    reasons = {line.row.session_id: line.training.reason for line in lines}
    assert reasons == {
        "a-1.0.0": "trained",
        "a-1.1.0": "unknown",
        "b-1.0.0": "group_filtered",
        "c-1.0.0": "stale",
        "c-1.1.0": "session_failed",
        "d-1.0.0": "group_dropped",
        "e-1.0.0": "",
        "f-1.0.0": "lost_step",
        "g-1.0.0": "not_in_step",
        "g-1.1.0": "under_way",
    }
    assert [line.training.steps for line in lines if line.training.steps] == [(("policy", 1),)]


def test_a_session_is_trained_from_the_commit_to_the_restart_that_undoes_it() -> None:
    places = (4, 5, 6, 7)
    pages = [with_training("session=f-1", end=end) for end in places]
    assert [len(page.lines[0].training.steps) for page in pages] == [0, 1, 2, 0]


@pytest.mark.parametrize("trained, session", [("yes", "a-1.0.0"), ("no", "a-1.1.0")])
def test_a_search_finds_what_a_step_has_trained(trained: str, session: str) -> None:
    assert names(with_training(f"trained={trained}&group=a-1")) == [session]
    both = len(with_training("trained=yes").lines) + len(with_training("trained=no").lines)
    assert both == len(with_training().lines)


def test_an_event_of_an_older_epoch_does_not_count() -> None:
    events = [sessions.claimed(2), sessions.opened(epoch=1)]
    assert shown(events=events).lines == ()


def test_thousands_of_sessions_stay_in_order() -> None:
    events = [sessions.claimed(), *(sessions.opened(session_id=f"s{n}") for n in range(2_000))]
    page = shown("skip=1500&count=2", events=events)
    assert names(page) == ["s499", "s498"]
    assert page.matching == 2_000


@pytest.mark.parametrize("query", ["least=much", "skip=-1", "count=0", "skip=1e3", "trained=1"])
def test_a_wrong_part_of_a_query_is_named(query: str) -> None:
    with pytest.raises(QueryRejected, match=query.split("=")[0]):
        shown(query)
