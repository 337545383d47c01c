"""The page Now says what each worker, step, group and turn does."""

from typing import Any

import pytest

from seamlessflow.console.log.moment import Moment
from seamlessflow.console.views.now import NowPage, now_page
from seamlessflow.console.views.waits import SILENT_MS
from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas.records import LineageStarted
from tests.builders.console.memory_log import history_of, items_of
from tests.builders.records import control, fleet, sessions


def page(*groups: list[Received], moment: Moment | None = None) -> NowPage:
    history, _ = history_of([item for group in groups for item in group])
    return now_page(history.picture(moment))


def on_control(*records: Any) -> list[Received]:
    return items_of("control", records)


def test_a_worker_goes_through_its_phases() -> None:
    records = [
        control.joined("w"),
        control.assigned("w", "rollout", 1),
        control.acquired("w", "rollout", 1, version=3),
        control.paused(worker="w"),
        control.resumed(worker="w", version=4),
        control.assigned("w", "train", 2),
        control.acquired("w", "train", 2),
        control.started(["w"], step=0),
    ]
    items = on_control(*records)
    history, _ = history_of(items)
    does = [
        now_page(history.picture(Moment("control", 0, offset))).workers[0].doing
        for offset in range(len(items))
    ]
    assert does == [
        "has no role",
        "changes to rollout",
        "rolls out",
        "loads weights",
        "rolls out",
        "changes to train",
        "is ready to train",
        "trains step 1",
    ]
    assert now_page(history.picture(Moment("control", 0, 4))).workers[0].version == 4


def test_a_lost_worker_is_left_out_and_is_a_warning() -> None:
    shown = page(on_control(control.joined("w", "rollout"), control.lost("w", "rollout")))
    assert shown.workers == ()
    assert shown.warnings[0].kind == "worker lost"
    assert "heartbeat_timeout_s" in shown.warnings[0].helps
    assert shown.warnings[0].offset == 1


def test_what_a_deposed_scheduler_decided_does_not_count() -> None:
    shown = page(
        on_control(
            control.claimed(2),
            control.assigned("w", "train", 1, epoch=1),
            control.joined("v", epoch=2),
        )
    )
    assert [worker.worker for worker in shown.workers] == ["v"]


def test_a_step_goes_through_its_phases() -> None:
    items = on_control(
        control.batch_ready(0, groups=("g",)),
        control.started(["w"], 0),
        control.committed(0),
        control.published(1, policy=""),
        control.completed(0, metrics={"reward_mean": 0.5, "update_s": 2.0}),
        control.finished(1),
    )
    history, _ = history_of(items)
    shown = [now_page(history.picture(Moment("control", 0, n))).steps[0] for n in range(6)]
    assert [step.phase for step in shown] == [
        "waits for its gang",
        "trains",
        "writes its weights",
        "ends",
        "waits for groups",
        "ended",
    ]
    assert (shown[-1].done, shown[-1].rewards) == (1, ((1, 0.5),))
    assert shown[-1].last_seconds == {"update_s": 2.0}


def test_a_group_is_running_then_ready_then_in_a_batch_then_gone() -> None:
    items = on_control(
        control.admitted("g", group_size=4),
        control.ready("g", reward_mean=0.25),
        control.batch_ready(0, groups=("g",)),
        control.consumed("g", 0),
    )
    history, _ = history_of(items)
    pictures = [now_page(history.picture(Moment("control", 0, n))) for n in range(4)]
    assert [[group.state for group in shown.groups] for shown in pictures] == [
        ["running"],
        ["ready"],
        ["in batch"],
        [],
    ]


def test_turns_stand_at_the_worker_that_has_them() -> None:
    events = items_of(
        "sessions",
        [
            sessions.claimed(1, "me"),
            sessions.opened(group_id="g"),
            sessions.started("a"),
            sessions.dispatched("a", 1, worker="w"),
        ],
    )
    begin = on_control(control.joined("w"), control.admitted("g", group_size=2))
    shown = page(begin, events)
    assert (shown.turns_sampled, shown.turns_waiting, shown.with_agents) == (1, 0, 0)
    assert shown.workers[0].turns == 1
    assert (shown.groups[0].open, shown.groups[0].turns) == (1, 1)
    assert shown.partitions[0].manager == "me"


def test_a_group_has_its_ended_sessions_whichever_opened_first() -> None:
    records: list[Any] = [sessions.claimed()]
    for name in ("first", "second", "third"):
        records.append(sessions.opened(session_id=name, group_id="g"))
    for name in ("third", "first"):
        records += [sessions.closed(session_id=name), sessions.finalized(session_id=name)]
    records.append(sessions.opened(session_id="of another", group_id="h"))
    begin = on_control(control.admitted("g", group_size=3), control.admitted("h", group_size=1))
    groups = page(begin, items_of("sessions", records)).groups
    assert {group.group_id: (group.open, group.ended) for group in groups} == {
        "g": (1, 2),
        "h": (1, 0),
    }


def test_waits_of_many_workers_for_one_reason_are_one_line() -> None:
    workers = [f"w{number}" for number in range(40)]
    records = [record for w in workers for record in (control.joined(w), control.acquired(w))]
    beats = items_of("fleet", [fleet.heartbeat(w, "rollout", state="ready") for w in workers])
    shown = page(on_control(*records), beats)
    assert [len(wait.who) for wait in shown.waits] == [40]
    assert shown.waits[0].what == "turns to sample"


def test_workers_wait_for_agents_while_these_have_all_sessions() -> None:
    begin = on_control(control.joined("w"), control.acquired("w"))
    beats = items_of("fleet", [fleet.heartbeat("w", "rollout")])
    events = items_of("sessions", [sessions.claimed(), sessions.opened()])
    (wait,) = page(begin, beats, events).waits
    assert wait.why == "1 open session with agents, none asks"


def test_a_trainer_of_a_gang_says_who_is_missing() -> None:
    records = [
        control.joined("w"),
        control.joined("v"),
        control.batch_ready(0),
        control.assigned("w", "train", 1),
        control.assigned("v", "train", 2),
        control.acquired("w", "train", 1),
    ]
    waits = page(on_control(*records)).waits
    assert "not there yet: v" in [wait.why for wait in waits]


def test_symptoms_of_the_last_steps_name_the_settings_that_help() -> None:
    metrics = {"samples_failed": 5.0, "sessions": 5.0}
    shown = page(on_control(control.completed(0, metrics=metrics)))
    assert any("agents.on_timeout" in line for line in shown.symptoms)


def test_a_run_that_has_ended_waits_for_nothing() -> None:
    shown = page(on_control(control.joined("w"), control.finished(1)))
    assert shown.finished
    assert shown.waits == ()


def test_a_run_of_two_policies_has_ended_when_both_have() -> None:
    one_ended = [
        control.completed(0, policy="a"),
        control.completed(0, policy="b"),
        control.finished(1, policy="a"),
    ]
    assert not page(on_control(*one_ended)).finished
    assert page(on_control(*one_ended, control.finished(1, policy="b"))).finished


def test_a_run_that_goes_on_behind_its_end_has_not_ended() -> None:
    again = LineageStarted(at_ms=0, policy="", lineage="b", step=1, settings=b"{}")
    shown = page(on_control(control.joined("w"), control.finished(1), again))
    assert not shown.finished
    assert [wait.what for wait in shown.waits] == ["a role"]


@pytest.mark.parametrize(("later_ms", "silent"), [(0, False), (SILENT_MS + 1_000, True)])
def test_turns_wait_for_a_worker_that_is_silent(later_ms: int, silent: bool) -> None:
    begin = on_control(control.joined("w"), control.acquired("w"))
    beats = items_of("fleet", [fleet.heartbeat("w", "rollout")])
    asked = [sessions.claimed(), sessions.opened(), sessions.started("a")]
    events = items_of("sessions", [*asked, sessions.dispatched("a", 1, worker="w")], step_ms=0)
    (at,) = items_of("control", [control.usage("w")], first=2, step_ms=later_ms)
    waits = page(begin, beats, events, [at]).waits
    assert [(wait.who, wait.what) for wait in waits] == [(("1 turn",), "w")] * silent


def test_a_worker_that_samples_far_fewer_tokens_a_second_than_others_is_slow() -> None:
    workers = [("w0", 90), ("w1", 100), ("w2", 20)]
    joined = [
        event for name, _ in workers for event in (control.joined(name), control.acquired(name))
    ]
    used = [control.usage(name, tokens=tokens, decoding_ms=500) for name, tokens in workers]
    lines = page(on_control(*joined, *used, control.joined("w3"))).workers
    assert [(line.worker, line.tokens_per_s, line.slow) for line in lines] == [
        ("w0", 180.0, False),
        ("w1", 200.0, False),
        ("w2", 40.0, True),
        ("w3", None, False),
    ]


def test_a_later_report_of_tokens_counts_more() -> None:
    used = [control.usage("w", tokens=tokens, decoding_ms=1000) for tokens in (100, 0)]
    (line,) = page(on_control(control.joined("w"), *used)).workers
    assert line.tokens_per_s == pytest.approx(90 / 1.9)


def test_an_empty_log_has_an_empty_page() -> None:
    shown = page()
    assert (shown.workers, shown.waits, shown.at_ms) == ((), (), 0)
