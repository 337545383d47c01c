"""Stalls: each is reported once."""

from seamlessflow.scheduler.decisions.stalls import stalled, unreported
from seamlessflow.scheduler.settings import SchedulerSection
from seamlessflow.scheduler.state.state import State, apply
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.scheduler.inputs import fold, holds, scheduler_settings

SETTINGS = scheduler_settings(scheduler=SchedulerSection(stall_s=10))
BEGUN = [control.claimed(), control.joined("w"), *holds("w")]


def what(state: State, now_ms: int) -> list[str]:
    return [record.what for record in stalled(state, state.first, SETTINGS, now_ms)]


def test_a_batch_without_a_gang_is_reported() -> None:
    """Holds invariant I8."""
    state = fold(*BEGUN, control.batch_ready(at_ms=5))

    assert what(state, 10_004) == []
    assert what(state, 10_005) == ["gang"]


def test_a_step_that_does_not_end_is_reported() -> None:
    state = fold(
        *BEGUN,
        control.assigned("w", "train", 1, gang_epoch=1),
        control.batch_ready(),
        control.started(["w"]),
    )

    assert what(state, 10_000) == ["step"]


def test_the_time_before_a_scheduler_began_is_no_stall() -> None:
    unfinished = [
        *BEGUN,
        control.assigned("w", "train", 1, gang_epoch=1),
        control.batch_ready(),
        control.started(["w"]),
    ]
    later = control.claimed(epoch=2, at_ms=100_000)
    assert what(fold(*unfinished, later), 109_999) == []
    assert what(fold(*unfinished, later), 110_000) == ["step"]
    groups = fold(*BEGUN, control.admitted("run-0", at_ms=5), later)
    assert what(groups, 109_999) == []
    assert what(groups, 110_000) == ["rollout"]


def test_groups_that_do_not_move_are_reported() -> None:
    state = fold(
        *BEGUN,
        control.admitted("run-0", at_ms=5),
        control.admitted("run-1"),
        control.ready("run-0", at_ms=9),
    )

    assert what(state, 10_008) == []
    assert what(state, 10_009) == ["rollout"]


def test_an_exhausted_refill_is_reported_at_once() -> None:
    run, refill = SETTINGS.run, SETTINGS.pacing.refill
    most = run.groups_per_step * (run.lag + 1 + int(refill))
    lost: list[Record] = []
    for number in range(most):
        lost += [
            control.admitted(f"run-{number}", at_ms=1),
            control.dropped(f"run-{number}", at_ms=1),
        ]

    assert what(fold(*BEGUN, *lost[:-2]), 2) == []
    assert what(fold(*BEGUN, *lost[:-1]), 2) == []
    assert what(fold(*BEGUN, *lost), 2) == ["refill"]


def test_a_stall_that_was_reported_is_not_reported_again() -> None:
    state = fold(*BEGUN, control.batch_ready(at_ms=5))
    (reported,) = unreported(state, stalled(state, state.first, SETTINGS, 10_005))
    after = apply(state, reported)
    later = stalled(after, after.first, SETTINGS, 20_000)

    assert [stall.since_ms for stall in later] == [5]
    assert not unreported(after, later)


def test_a_stall_names_the_process_that_is_waited_for_and_the_time_it_was_given() -> None:
    state = fold(*BEGUN, control.batch_ready(at_ms=5))
    (reported,) = stalled(state, state.first, SETTINGS, 10_005)

    assert (reported.process, reported.deadline_ms) == ("train", 10_000)
