"""The timeline folded from `control`, and its chart."""

from pathlib import Path
from typing import Any

import pytest

from seamlessflow.lab.timeline.chart import plot
from seamlessflow.scheduler.state.accounts.device_time import (
    LOADING,
    ROLLOUT,
    SWITCHING,
    TRAINING,
    WAITING,
    Interval,
)
from seamlessflow.scheduler.state.timeline import StepEnd, timeline
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
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
    return [
        (interval.state, interval.start_ms, interval.end_ms)
        for interval in timeline(records).intervals
    ]


def test_a_worker_goes_through_its_states() -> None:
    assert spans(*RUN, control.completed(1, at_ms=300)) == [
        (SWITCHING, 0, 10),
        (ROLLOUT, 10, 100),
        (SWITCHING, 100, 110),
        (WAITING, 110, 115),
        (TRAINING, 115, 200),
        (WAITING, 200, 205),
        (SWITCHING, 205, 220),
        (ROLLOUT, 220, 300),
    ]


def test_changes_of_role_steps_and_handed_back_turns_are_counted() -> None:
    run = timeline(RUN)

    assert (run.switches, run.handed_back) == (2, 3)
    assert run.steps == (StepEnd(0, 1, 200),)
    assert (run.start_ms, run.end_ms) == (0, 220)


def test_loading_weights_is_a_pause() -> None:
    paused = r.GenerationPaused(
        at_ms=20, worker="w", incarnation="i", mode="keep", running=1, reason="weights"
    )
    resumed = r.GenerationResumed(at_ms=30, worker="w", incarnation="i", version=1, paused_ms=10)

    assert spans(*RUN[:3], paused, resumed, control.completed(at_ms=40))[1:] == [
        (ROLLOUT, 10, 20),
        (LOADING, 20, 30),
        (ROLLOUT, 30, 40),
    ]


def test_writing_the_weights_of_a_step_is_no_training() -> None:
    wrote = control.completed(at_ms=200, metrics={"publish_s": 0.03})

    assert spans(*RUN[:7], wrote, control.ready(at_ms=210))[-3:] == [
        (TRAINING, 115, 170),
        (LOADING, 170, 200),
        (WAITING, 200, 210),
    ]
    long = control.completed(at_ms=200, metrics={"publish_s": 9.0})
    assert spans(*RUN[:7], long)[-1] == (LOADING, 115, 200)


def test_a_lost_worker_does_nothing() -> None:
    lost = control.lost("w", at_ms=50)

    assert spans(*RUN[:3], lost, control.completed(at_ms=90))[-1] == (ROLLOUT, 10, 50)


def test_a_worker_without_a_role_waits() -> None:
    joined = [control.joined("w", process, at_ms=0) for process in ("rollout", "train")]
    late = control.timed_out("w", "rollout", at_ms=40)
    lost = control.lost("w", "train", at_ms=50)

    assert spans(*joined, control.assigned("w", at_ms=10), late, lost, control.ready(at_ms=60)) == [
        (WAITING, 0, 60)
    ]
    assert spans(*joined, lost, control.lost("w", at_ms=60), control.ready(at_ms=90)) == [
        (WAITING, 0, 60)
    ]


def test_the_start_of_an_engine_is_no_switch() -> None:
    joined = [control.joined("w", process, at_ms=0) for process in ("rollout", "train")]
    first = [control.assigned("w", at_ms=5), control.acquired("w", at_ms=20)]
    change = [
        control.assigned("w", "train", 1, gang_epoch=1, at_ms=30),
        control.acquired("w", "train", 1, at_ms=40),
    ]
    killed = [
        control.lost("w", at_ms=50),
        control.joined("w", incarnation="again", at_ms=60),
        control.assigned("w", assignment=2, at_ms=65),
        control.acquired("w", assignment=2, at_ms=90),
    ]
    assert spans(*joined, *first, *change, *killed, control.ready(at_ms=100)) == [
        (WAITING, 0, 20),
        (ROLLOUT, 20, 30),
        (SWITCHING, 30, 40),
        (WAITING, 40, 90),
        (ROLLOUT, 90, 100),
    ]


def test_a_role_that_is_given_up_unasked_is_over() -> None:
    alone = control.released("w", at_ms=30)

    assert spans(*RUN[:3], alone, control.ready(at_ms=50))[1:] == [
        (ROLLOUT, 10, 30),
        (WAITING, 30, 50),
    ]


def test_a_step_ends_for_its_own_gang() -> None:
    records = [
        control.started(["a"], policy="one", at_ms=0),
        control.started(["b"], policy="two", at_ms=0),
        control.completed(policy="one", at_ms=10),
        control.completed(policy="two", at_ms=30),
    ]

    assert [interval for interval in timeline(records).intervals if interval.state == TRAINING] == [
        Interval("a", TRAINING, 0, 10),
        Interval("b", TRAINING, 0, 30),
    ]


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


def test_a_training_of_recorded_sessions_begins_with_its_first_step() -> None:
    assert timeline([control.claimed(), *RUN]).training_ms == (115, 200)


def test_time_before_and_after_training_does_not_count() -> None:
    run = timeline(
        [
            control.joined("w", at_ms=0),
            control.admitted("run-eval0-0", at_ms=5, purpose="eval"),
            control.admitted("run-0", at_ms=20),
            control.completed(0, at_ms=50),
            control.ready("run-0", at_ms=60),
        ]
    )

    assert (run.training_ms, run.step_ms) == ((20, 50), 30)
    assert run.device_time()["w"].ms == {WAITING: 30}


def test_the_ideal_step_is_that_of_the_work_or_of_a_groups_latency() -> None:
    group = [control.admitted("g", at_ms=115), control.ready("g", at_ms=165)]
    ideal = timeline([*RUN[:7], *group, *RUN[7:]]).ideal_step(lag=1)

    assert ideal is not None
    assert (ideal.work_ms, ideal.latency_ms, ideal.ms) == (85, 25, 85)


def test_steps_of_several_policies_are_limited_by_the_latency_of_the_groups_of_each() -> None:
    """In a second `a` makes ten steps at most and `b` five: fifteen of both, one in 66.7 ms."""
    groups: list[Record] = []
    for group, policy, latency_ms in (("a0", "a", 200), ("b0", "b", 400)):
        groups.append(control.admitted(group, at_ms=0))
        groups.append(control.ready(group, policy=policy, at_ms=latency_ms))
    ends = [control.completed(policy=name, at_ms=500) for name in ("a", "b")]
    ideal = timeline([control.joined("w", at_ms=0), *groups, *ends]).ideal_step(lag=1)

    assert ideal is not None and ideal.latency_ms == pytest.approx(1000 / 15)


def test_a_group_of_several_policies_counts_for_each_of_them_once() -> None:
    records = [
        control.admitted("g", at_ms=0),
        control.ready("g", policy="a", at_ms=100),
        control.ready("g", policy="b", at_ms=300),
        control.ready("g", policy="b", at_ms=900),
    ]
    assert timeline(records).group_ms() == pytest.approx(75)


def test_workers_are_in_the_order_of_their_numbers() -> None:
    records = [control.assigned(name, at_ms=0) for name in ("w10", "w2", "a")]

    assert timeline([*records, control.completed(at_ms=5)]).workers == ("a", "w2", "w10")


def test_clocks_that_differ_make_no_interval_of_less_than_nothing() -> None:
    run = timeline(
        [
            control.assigned("w", at_ms=50),
            control.acquired("w", at_ms=40),
            control.completed(at_ms=60),
        ]
    )

    assert run.intervals == (Interval("w", ROLLOUT, 50, 60, waits={"report": 1.0}),)


def test_the_picture_is_a_png_or_an_svg(tmp_path: Path) -> None:
    many: list[Record] = [*RUN]
    for step in range(1, 60):
        many.append(control.completed(step, at_ms=300 + 100 * step))
    report = control.usage(decoding_ms=50, full_batch_ms=30, from_ms=20, at_ms=80)
    for name, records in (("few", [*RUN, report]), ("many", many), ("none", [])):
        path = tmp_path / f"{name}.png"
        plot(timeline(records), path)
        assert path.read_bytes().startswith(b"\x89PNG")
    further = control.completed(4, at_ms=230, policy="coder")
    plot(timeline([*RUN, report, further]), tmp_path / "few.svg")
    drawn = (tmp_path / "few.svg").read_text()
    assert "</svg>" in drawn and "coder v5" in drawn, "of several policies a version has its name"


@pytest.mark.parametrize(
    ("versions", "lines", "caption"),
    [(3, 3, "each worker did"), (25, 25, "a line for each version"), (600, 12, "of 600 versions")],
)
def test_a_picture_has_a_line_for_each_version_or_says_for_how_many(
    tmp_path: Path, versions: int, lines: int, caption: str
) -> None:
    ends = [control.completed(step, at_ms=300 + 100 * step) for step in range(versions)]
    plot(timeline([control.joined("w", at_ms=0), *ends]), tmp_path / "lines.svg")
    drawn = (tmp_path / "lines.svg").read_text()
    assert caption in drawn
    assert drawn.count("stroke-dasharray") >= lines


def test_a_picture_of_very_many_workers_has_a_row_of_pixels_for_each(tmp_path: Path) -> None:
    joined = [control.joined(f"w{number}", at_ms=0) for number in range(90)]

    plot(timeline([*joined, *RUN]), tmp_path / "many.png")

    assert (tmp_path / "many.png").read_bytes().startswith(b"\x89PNG")


HOUR = 3_600_000


def lineage(at_ms: int) -> r.LineageStarted:
    return r.LineageStarted(at_ms=at_ms, policy="", lineage="b", step=1, settings=b"{}")


def resumed(at_ms: int = HOUR, incarnation: str = "j") -> list[Record]:
    """Return what a run writes that goes on for another step."""
    new: dict[str, Any] = {"incarnation": incarnation}
    return [
        control.claimed(2, "b", at_ms=at_ms),
        lineage(at_ms),
        control.lost("w", at_ms=at_ms + 1, epoch=2, reason="replaced"),
        control.joined("w", "train", at_ms=at_ms + 2, epoch=2, **new),
        control.assigned("w", "train", 3, at_ms=at_ms + 10, epoch=2, **new),
        control.acquired("w", "train", 3, at_ms=at_ms + 30, **new),
        control.started(["w"], step=1, epoch=2, at_ms=at_ms + 30),
        control.completed(1, lineage="b", at_ms=at_ms + 80),
    ]


def test_a_time_in_which_no_process_lived_is_nobodys() -> None:
    group = control.admitted("g", at_ms=0), control.ready("g", at_ms=HOUR + 20)
    log = [RUN[0], group[0], *RUN[1:], *resumed(), group[1]]
    run = timeline(log)
    assert run.pauses == ((220, HOUR),)
    assert [
        (interval.state, interval.start_ms, interval.end_ms) for interval in run.intervals[-3:]
    ] == [
        (SWITCHING, 205, 220),
        (WAITING, HOUR + 2, HOUR + 30),
        (TRAINING, HOUR + 30, HOUR + 80),
    ]
    assert run.step_ms == (220 + 80) / 2
    assert run.group_ms() == 220 + 20
    spent = run.device_time()["w"]
    assert spent.total == 220 + 78
    ideal = run.ideal_step(1)
    assert ideal is not None and ideal.work_ms < run.step_ms


def test_a_trainer_may_be_there_before_the_new_scheduler() -> None:
    assert timeline([*RUN, lineage(HOUR - 10), *resumed()]).pauses == ((220, HOUR - 10),)


@pytest.mark.parametrize(
    "living",
    [
        [control.usage("w", at_ms=HOUR + 90)],
        [control.acquired("w", "train", 4, at_ms=HOUR + 90)],
        [control.completed(2, at_ms=HOUR + 90)],
    ],
    ids=["a report", "a role", "a trainer"],
)
def test_a_scheduler_that_is_replaced_alone_is_no_pause(living: list[Record]) -> None:
    assert timeline([*RUN, *resumed(), *living]).pauses == ()


def test_the_last_record_is_no_pause() -> None:
    assert timeline([*RUN, control.ready("g", at_ms=HOUR)]).pauses == ()
    assert timeline([control.claimed(), control.ready("g", at_ms=HOUR), *RUN[1:]]).pauses == ()


def test_each_pause_of_a_run_counts() -> None:
    again = [control.claimed(3, at_ms=2 * HOUR), control.ready("g", at_ms=2 * HOUR + 1)]
    assert timeline([*RUN, *resumed(), *again]).pauses == ((220, HOUR), (HOUR + 80, 2 * HOUR))


def test_a_step_that_is_executed_again_counts_once() -> None:
    again = [
        *RUN,
        control.assigned("w", "train", 3, gang_epoch=2, at_ms=300),
        control.started(["w"], at_ms=320),
        control.completed(0, at_ms=400),
        control.completed(1, at_ms=500),
    ]
    run = timeline(again)
    assert [step.step for step in run.steps] == [0, 0, 1]
    assert run.steps_made == 2
    assert run.step_ms == run.lived_ms() / 2
