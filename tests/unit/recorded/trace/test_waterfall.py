"""A waterfall tells from records alone when what happened to a session and its tokens."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.trace.row import Row
from seamlessflow.recorded.trace.view import waterfall_json
from seamlessflow.recorded.trace.waterfall import Waterfall, waterfall
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import (
    CONTROL,
    PROMPTS,
    REPLIES,
    REQUESTS,
    SESSIONS,
    TASKS,
    Headers,
)
from tests.builders.records import commands, control, sessions
from tests.builders.records.content import ids
from tests.builders.records.tasks import task
from tests.builders.traces import session_history as history
from tests.builders.traces.session_history import ID, OWN, Placed, received

OPENED = (history.ADMITTED, history.QUEUED, *history.OPENED)
ENDED = (*OPENED, *history.BEGUN, *history.ANSWERED, *history.JUDGED)


def made(placed: Iterable[Placed], headers: Headers = ()) -> Waterfall:
    items = received(placed, headers)
    return waterfall(ID, [item for item in items if item.topic != CONTROL.name], of_control(items))


def of_control(items: Sequence[Received]) -> list[Received]:
    return [item for item in items if item.topic == CONTROL.name]


def lines(rows: Iterable[Row]) -> list[tuple[str, str]]:
    return [(row.name, row.detail) for row in rows]


def named(rows: Iterable[Row], name: str) -> Row:
    return next(row for row in rows if row.name == name)


def test_a_session_is_followed_from_its_group_to_the_weights() -> None:
    trace = made(history.trained())
    assert lines(trace.whole) == [
        ("group g", "ready with 1 sessions, mean reward 0.5"),
        ("task", "t, until an agent took it"),
        ("session", "1 turn"),
        ("trajectory", "5 tokens, 3 may be trained"),
        ("batch of step 5", "1 groups, 1 tokens"),
        ("step 5", "makes version 5"),
        ("committed", ""),
        ("weights published", "version 5"),
    ]
    assert lines(trace.session) == [
        ("opened", ""),
        ("turn 1", "stop, a"),
        ("matched", "root, prompt of 2 tokens"),
        ("dispatch #1 on w", "3 tokens, version 0"),
        ("prompt sent", ""),
        ("answered", "status 200"),
        ("rewarded", "reward 0.5"),
        ("closed", "complete"),
        ("finalized", "rewarded"),
    ]
    assert trace.outcome == "trained in step 5, which made version 5"
    assert trace.notices == ()


def test_a_row_lasts_from_its_first_record_to_its_last() -> None:
    trace = made(history.trained())
    turn = named(trace.session, "turn 1")
    places = [(item.topic, item.offset) for item in turn.records]
    assert places == [
        (REQUESTS.name, 4),
        (SESSIONS.name, 5),
        (SESSIONS.name, 8),
        (REPLIES.name, 9),
    ]
    assert (turn.start_ms, turn.end_ms) == (1_040, 1_090)
    assert trace.start_ms == 1_000


def test_an_interruption_a_continuation_and_a_weight_update_are_rows_of_the_turn() -> None:
    again = sessions.dispatched(
        **OWN, dispatch=2, worker="v", incarnation="j", reason="interrupted", from_offset=1
    )
    rest = sessions.completed(
        ids(4), **OWN, dispatch=2, worker="v", incarnation="j", token_offset=1
    )
    trace = made(
        [
            *OPENED,
            *history.BEGUN,
            (SESSIONS.name, sessions.progressed(ids(3), **OWN)),
            (CONTROL.name, control.paused(worker="w")),
            (CONTROL.name, control.paused(worker="other")),
            (CONTROL.name, control.resumed(worker="w", version=7)),
            (SESSIONS.name, sessions.interrupted(b"", **OWN)),
            (SESSIONS.name, again),
            (SESSIONS.name, rest),
        ]
    )
    assert lines(trace.session)[3:] == [
        ("dispatch #1 on w", "1 tokens, version 0, interrupted: preempted"),
        ("prompt sent", ""),
        ("first tokens", ""),
        ("paused", "weights, on with version 7"),
        ("dispatch #2 on v", "1 tokens, version 0, dispatched since interrupted"),
    ]


def dispatch_of(placed: Iterable[Placed]) -> str:
    return named(made(placed).session, "dispatch #1 on w").detail


def test_output_that_the_fold_ignores_is_not_counted() -> None:
    kept = (SESSIONS.name, sessions.progressed(ids(3), **OWN))
    late = (SESSIONS.name, sessions.completed(ids(4), **OWN, token_offset=1))
    cancelled = (SESSIONS.name, sessions.cancelled(**OWN))
    begun = (*OPENED, *history.BEGUN)
    assert dispatch_of([*begun, kept, kept]) == "1 tokens, version 0"
    assert dispatch_of([*begun, kept, cancelled, late]) == "1 tokens, version 0"
    assert dispatch_of([*begun, kept, late]) == "2 tokens, version 0"


def test_a_cancellation_by_a_manager_that_lost_the_partition_cuts_off_no_tokens() -> None:
    claim = (SESSIONS.name, sessions.claimed(2))
    late = (SESSIONS.name, sessions.cancelled(**OWN))
    whole = (SESSIONS.name, sessions.completed(ids(3, 4), **OWN))
    assert dispatch_of([*OPENED, *history.BEGUN, claim, late, whole]) == "2 tokens, version 0"


def test_tokens_of_a_session_whose_beginning_was_removed_are_all_counted() -> None:
    kept = (SESSIONS.name, sessions.progressed(ids(3), **OWN))
    assert dispatch_of([*history.BEGUN, kept]) == "1 tokens, version 0"


def test_a_call_that_began_no_turn_is_a_row() -> None:
    refused = sessions.refused(**OWN, command_id="request-a", status=400, reason="empty")
    call = commands.request_turn(**OWN)
    trace = made([*OPENED, (REQUESTS.name, call), (SESSIONS.name, refused)])
    assert lines(trace.session)[1:] == [("call", "refused with 400: empty, a")]


@pytest.mark.parametrize(
    ("placed", "reason"),
    [
        ([history.ADMITTED, history.QUEUED], "no agent has opened it"),
        (OPENED, "it is open"),
        ([*OPENED, *history.BEGUN, *history.ANSWERED, *history.JUDGED[:2]], "waits for its reward"),
        (ENDED, "its trajectory is not on the log yet"),
        ([*ENDED, history.finished()], "group g is not complete"),
        ([*ENDED, history.finished(), history.READY], "group g is ready and waits for a step"),
        (
            [*ENDED, history.finished(), (CONTROL.name, control.ready("g", sessions=("g.1.0",)))],
            "group g was ready without it",
        ),
        (
            [*ENDED, history.finished(), (CONTROL.name, control.dropped("g", detail="all equal"))],
            "group g was dropped (filtered): all equal",
        ),
        (
            [*ENDED, history.finished(), (CONTROL.name, control.sample_failed("g", detail="why"))],
            "it spoilt its sample (environment): why",
        ),
        (
            [*ENDED, history.finished(), history.READY, history.BATCH, history.STARTED],
            "step 5 is not committed yet",
        ),
        ([(SESSIONS.name, sessions.opened(**OWN, purpose="eval"))], "it is for eval"),
    ],
)
def test_a_session_that_is_not_trained_says_why(placed: Sequence[Placed], reason: str) -> None:
    outcome = made(placed).outcome
    assert outcome.startswith("not trained: ")
    assert outcome.endswith(reason)


def test_a_session_in_a_step_without_a_token_that_may_be_trained_is_not_said_to_be_trained() -> (
    None
):
    topic, whole = history.finished()
    masked = replace(whole, loss_mask=bytes(len(whole.loss_mask)))
    trace = made([*ENDED, (topic, masked), *history.trained()[-6:]])
    assert trace.outcome == (
        "in step 5, which made version 5, but none of its tokens may be trained"
    )


def test_a_session_that_a_filter_kept_out_of_the_loss_names_the_filter() -> None:
    group = r.StepGroup(group_id="g", sessions=(ID,), filtered="zero_variance")
    method = r.StepMethod(kind="advantage", name="grpo")

    def outcome(step_group: r.StepGroup, **changes: Any) -> str:
        commit = control.committed(4, [step_group], methods=(method,), **changes)
        ready = (history.READY, history.BATCH, history.STARTED)
        return made([*ENDED, history.finished(), *ready, (CONTROL.name, commit)]).outcome

    step = "in step 5, which made version 5"
    assert outcome(group) == f"{step}, but the filter zero_variance kept its group out of the loss"
    assert outcome(replace(group, filtered="")).startswith(f"{step}, but none of its tokens")
    assert outcome(group, trained_tokens={ID: 3}) == f"trained {step}"


def test_what_is_under_way_has_no_end() -> None:
    trace = made([*OPENED, *history.BEGUN])
    under_way = [row.name for row in (*trace.whole, *trace.session) if row.end_ms is None]
    assert under_way == ["group g", "session", "turn 1", "dispatch #1 on w"]
    step = made([*ENDED, history.finished(), history.READY, history.BATCH, history.STARTED])
    assert [row.name for row in step.whole if row.end_ms is None] == ["step 5"]


def test_a_step_that_was_executed_again_is_shown_each_time() -> None:
    method = r.StepMethod(kind="loss", name="tis", version=2)
    groups = history.COMMITTED[1].groups
    more = {"methods": (method,), "trained_tokens": {ID: 3}}
    again = control.committed(4, groups, lineage="b", version=6, **more)
    trace = made([*history.trained(), history.STARTED, (CONTROL.name, again)])
    steps = [row.detail for row in trace.whole if row.name == "step 5"]
    assert steps == ["makes version 5, lineage a", "makes version 6, lineage b"]
    by = [row.detail for row in trace.whole if row.name == "committed"]
    assert by == ["", "by tis version 2"]
    assert trace.outcome.endswith("version 6; executed again after a restart: 5 (2 times)")


def test_a_session_that_a_later_step_trains_again_by_plan_names_both_steps() -> None:
    groups = tuple(replace(group, reused=1) for group in history.COMMITTED[1].groups)
    later = control.committed(6, groups, version=7)
    trace = made([*history.trained(), history.STARTED, (CONTROL.name, later)])
    assert trace.outcome == "trained in step 7, which made version 7; also trained, by plan, in 5"
    by_plan = [row.detail for row in trace.whole if row.name == "step 7"]
    assert by_plan == ["makes version 7, lineage a, trained by 1 steps before, by plan"]


def test_a_stored_session_names_whose_place_it_took_and_the_other_who_took_it() -> None:
    group = history.COMMITTED[1].groups[0]

    def outcome(session: str, by: str) -> tuple[str, list[str]]:
        each = r.ReplacedSession(session_id=session, by=by, pool="own", uses=1)
        groups = (replace(group, replaced=(each,)),)
        tokens = {"trained_tokens": {by: 3}}
        trace = made([*history.trained(), (CONTROL.name, control.committed(6, groups, **tokens))])
        return trace.outcome, [row.detail for row in trace.whole if row.name == "step 7"]

    assert outcome(ID, "h.0.0")[0].endswith("but session h.0.0 of the pool own took its place")
    shown, (detail,) = outcome("g.9.0", ID)
    assert shown.startswith("trained in step 7")
    assert detail.endswith(
        "in the place of session g.9.0 of group g, trained by 1 steps before, by plan"
    )


def test_topics_that_have_no_record_any_more_are_named() -> None:
    gone = {TASKS.name, REQUESTS.name, PROMPTS.name, REPLIES.name}
    trace = made([item for item in history.trained() if item[0] not in gone])
    assert trace.notices == (
        "tasks: none of its records is there; the topic keeps them for 3 days",
        "requests: none of its records is there; the topic keeps them for 3 days",
        "prompts: none of its records is there; the topic keeps them for 1 h",
        "replies: none of its records is there; the topic keeps them for 1 h",
    )
    assert trace.outcome.startswith("trained")
    assert named(trace.session, "turn 1").start_ms == 1_020


def test_the_json_has_the_trace_ids_and_the_place_of_each_record() -> None:
    document = waterfall_json(made(history.trained(), history.TRACED))
    traces = document["traces"]
    assert isinstance(traces, list)
    assert [trace["trace_id"] for trace in traces] == [history.TRACE]
    rows = document["session"]
    assert isinstance(rows, list)
    assert rows[0]["trace_ids"] == [history.TRACE]
    assert rows[0]["records"][1] == {
        "type": "SessionOpened",
        "topic": "sessions",
        "partition": 0,
        "offset": 3,
        "timestamp_ms": 1_030,
    }


def test_a_group_says_which_task_set_it_was_drawn_from_and_by_which_figures() -> None:
    figures = {"draw": 20.0, "source_draw": 6.0, "share": 0.25}
    drawn = control.admitted(
        "g",
        group_size=2,
        min_group_size=1,
        split="math",
        sampler="shuffled",
        sampler_figures=figures,
    )
    (row, *_) = made([(CONTROL.name, drawn), *OPENED[1:], history.READY]).whole
    assert row.detail == (
        "ready with 1 sessions, mean reward 0.5; asked for 2, at least 1, "
        "drawn from math (shuffled, draw 20, share 0.25, source_draw 6)"
    )
    seeds = (r.SeedSession(session_id="e.0.0", text="", value=0.0),)
    again = control.admitted("g", group_size=1, min_group_size=1, explored="e", seeds=seeds)
    (row, *_) = made([(CONTROL.name, again), *OPENED[1:], history.READY]).whole
    assert row.detail.endswith("at least 1, samples 1 sessions of e again")
    evaluated = control.admitted("g", group_size=2, min_group_size=1, purpose="eval", split="hard")
    (row, *_) = made([(CONTROL.name, evaluated), *OPENED[1:], history.READY]).whole
    assert row.detail.endswith("at least 1, drawn from hard")


def test_a_group_says_which_role_its_sessions_have() -> None:
    admitted = control.admitted("g", group_size=2, min_group_size=1, role="seeker")
    (row, *_) = made([(CONTROL.name, admitted), *OPENED[1:], history.READY]).whole
    assert row.detail.endswith("at least 1, role seeker")


def test_a_session_of_a_further_role_is_in_its_own_group() -> None:
    roles = tuple(
        r.EpisodeRole(role=role, policy="p", group_id=name)
        for role, name in (("seeker", "other"), ("hider", "g"))
    )
    queued = task(group_id="other", task_id="t", roles=roles)
    placed = [(CONTROL.name, control.admitted("g", role="hider")), (TASKS.name, queued)]
    assert [row.name for row in made(placed).whole] == ["group g", "task"]
    assert named(made([*placed, *OPENED[2:], history.READY]).whole, "group g").detail.startswith(
        "ready"
    )
