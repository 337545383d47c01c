"""The timeline folded from `control`, and its chart."""

from dataclasses import replace
from pathlib import Path

from scheduler.state.timeline import (
    PAUSED,
    ROLLOUT,
    SWITCHING,
    TRAIN,
    WAITING,
    Interval,
    StepEnd,
    timeline,
)
from schemas import records as r
from schemas.records import Record
from seamlessflow.reports.timeline_chart import plot
from tests.builders.records import control

RUN: list[Record] = [
    control.claimed(),
    control.assigned("w", at_ms=0),
    control.acquired("w", at_ms=10),
    control.assigned("w", "train", 1, gang_epoch=1, at_ms=100),
    control.released("w", "rollout", 1, at_ms=105, handed_back=3),
    control.acquired("w", "train", 1, at_ms=110),
    control.started(["w"], at_ms=115),
    control.completed(0, at_ms=200),
    control.assigned("w", assignment=2, at_ms=205),
    control.acquired("w", assignment=2, at_ms=220),
]


def spans(*records: Record) -> list[tuple[str, int, int]]:
    return [(of.state, of.start_ms, of.end_ms) for of in timeline(records).intervals]


def test_a_worker_goes_through_its_states() -> None:
    assert spans(*RUN, control.completed(1, at_ms=300)) == [
        (SWITCHING, 0, 10),
        (ROLLOUT, 10, 100),
        (SWITCHING, 100, 110),
        (WAITING, 110, 115),
        (TRAIN, 115, 200),
        (WAITING, 200, 205),
        (SWITCHING, 205, 220),
        (ROLLOUT, 220, 300),
    ]


def test_changes_of_role_steps_and_handed_back_turns_are_counted() -> None:
    found = timeline(RUN)

    assert (found.switches, found.handed_back) == (2, 3)
    assert found.steps == (StepEnd(0, 1, 200),)
    assert (found.start_ms, found.end_ms) == (0, 220)


def test_loading_weights_is_a_pause() -> None:
    paused = r.GenerationPaused(
        at_ms=20, worker="w", incarnation="i", mode="keep", running=1, reason="weights"
    )
    resumed = r.GenerationResumed(at_ms=30, worker="w", incarnation="i", version=1, paused_ms=10)

    assert spans(*RUN[:3], paused, resumed, control.completed(at_ms=40))[1:] == [
        (ROLLOUT, 10, 20),
        (PAUSED, 20, 30),
        (ROLLOUT, 30, 40),
    ]


def test_a_lost_worker_does_nothing() -> None:
    lost = control.lost("w", at_ms=50)

    assert spans(*RUN[:3], lost, control.completed(at_ms=90))[-1] == (ROLLOUT, 10, 50)


def test_a_decision_of_an_older_epoch_behind_a_newer_claim_is_not_shown() -> None:
    assert (
        spans(
            control.claimed(1),
            control.claimed(2),
            control.assigned("w"),
            control.completed(at_ms=9),
        )
        == []
    )


def test_idle_shares_are_what_the_processes_measured() -> None:
    found = timeline(
        [
            control.usage("w", decoding_ms=60, idle_ms=20),
            control.usage("w", "train", training_ms=20),
        ]
    )

    assert found.idle == {"w": 0.2}


def test_a_training_of_recorded_sessions_begins_with_its_first_step() -> None:
    assert timeline([control.claimed(), *RUN]).training_ms == (115, 200)


def test_what_was_idle_before_and_after_training_does_not_count() -> None:
    def used(from_ms: int, idle_ms: int) -> Record:
        used = control.usage("w", decoding_ms=10, idle_ms=idle_ms)
        return replace(used, from_ms=from_ms, at_ms=from_ms + 10)

    found = timeline(
        [
            used(0, 100),
            control.admitted("run-eval0-0", at_ms=5, purpose="eval"),
            control.admitted("run-0", at_ms=20),
            used(30, 0),
            control.completed(0, at_ms=50),
            used(60, 100),
        ]
    )

    assert (found.idle, found.training_ms) == ({"w": 0.0}, (20, 50))


def test_workers_are_in_the_order_of_their_numbers() -> None:
    records = [control.assigned(name, at_ms=0) for name in ("w10", "w2", "a")]

    assert timeline([*records, control.completed(at_ms=5)]).workers == ("a", "w2", "w10")


def test_clocks_that_differ_make_no_interval_of_less_than_nothing() -> None:
    found = timeline(
        [
            control.assigned("w", at_ms=50),
            control.acquired("w", at_ms=40),
            control.completed(at_ms=60),
        ]
    )

    assert found.intervals == (Interval("w", ROLLOUT, 40, 60),)


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    many: list[Record] = [*RUN]
    for step in range(1, 60):
        many.append(control.completed(step, at_ms=300 + 100 * step))
    for name, records in (("few", RUN), ("many", many), ("none", [])):
        path = tmp_path / f"{name}.png"
        plot(timeline(records), path)
        assert path.read_bytes().startswith(b"\x89PNG")
