"""Reasons for which workers wait, and the bars that pictures draw."""

import pytest

from seamlessflow.lab.timeline.bars import bars, spent_by_part, waiting_for
from seamlessflow.scheduler.state.accounts.device_time import DECODING, TRAINING, WAITING, Interval
from seamlessflow.scheduler.state.accounts.waits import BATCH, GANG, GROUPS, REPORT, ROLE, TURNS
from seamlessflow.scheduler.state.timeline import timeline
from seamlessflow.schemas.records import Record
from tests.builders.records import control

ROLLING_OUT: list[Record] = [control.assigned("w", at_ms=0), control.acquired("w", at_ms=0)]
TRAINING_ROLE: list[Record] = [
    control.assigned("w", "train", at_ms=0),
    control.acquired("w", "train", at_ms=0),
]


def waited(*records: Record, until_ms: int = 100) -> dict[str, float]:
    """Return the milliseconds that `w` waits from 0 to `until_ms`, by reason."""
    run = timeline([*records, control.finished(at_ms=until_ms)])
    spent = spent_by_part(run.intervals, (0, until_ms)).get("w", {})
    prefix = waiting_for("")
    return {name.removeprefix(prefix): ms for name, ms in spent.items() if prefix in name}


def test_a_worker_without_a_role_waits_for_one() -> None:
    late = [control.joined("w", at_ms=0), control.assigned("w", at_ms=40)]

    assert waited(*late, control.timed_out("w", at_ms=70)) == {ROLE: 100}


def test_a_role_given_up_unasked_and_a_lost_process_leave_a_wait_for_a_role() -> None:
    assert waited(*TRAINING_ROLE, control.released("w", "train", at_ms=60)) == {BATCH: 60, ROLE: 40}
    joined = [control.joined("w", "train", at_ms=0), control.joined("w", at_ms=0)]
    lost = control.lost("w", "train", at_ms=60)
    step = control.started(["w"], at_ms=0)
    assert waited(*joined, *TRAINING_ROLE, step, lost) == {ROLE: 40}


def test_a_worker_that_trains_waits_for_a_batch_and_then_for_its_gang() -> None:
    batch = control.batch_ready(at_ms=30)

    waits = waited(*TRAINING_ROLE, batch, control.started(["w"], at_ms=50), until_ms=60)

    assert waits == {BATCH: 30, GANG: 20}


def test_in_a_step_a_worker_waits_for_its_gang_once_its_own_part_is_done() -> None:
    step = control.started(["w"], at_ms=20)
    report = control.usage("w", "train", from_ms=0, at_ms=100, training_ms=80, computing_ms=30)

    assert waited(*TRAINING_ROLE, step, report) == pytest.approx({BATCH: 20, GANG: 50})


def test_an_idle_engine_waits_for_turns_while_groups_are_under_way_and_else_for_groups() -> None:
    report = control.usage(decoding_ms=50, idle_ms=50, full_batch_ms=50, from_ms=0, at_ms=100)
    group = [control.admitted("g", at_ms=0), control.ready("g", at_ms=80)]

    assert waited(*ROLLING_OUT, *group, report) == pytest.approx({TURNS: 40, GROUPS: 10})


def test_rollout_without_a_turn_is_known_from_its_report() -> None:
    idle = control.usage(idle_ms=60, from_ms=0, at_ms=60)

    assert waited(*ROLLING_OUT, idle) == {GROUPS: 60, REPORT: 40}


def test_short_neighbours_become_one_bar_with_the_same_shares() -> None:
    times = [(0, 100), (100, 101), (101, 103), (103, 104), (104, 200)]
    states = (TRAINING, DECODING, WAITING, DECODING, TRAINING)
    intervals = [Interval("w", state, *time) for state, time in zip(states, times, strict=True)]

    (whole,) = bars(intervals, (0, 200), 5).values()
    (joined,) = bars(intervals, (0, 200), 3).values()

    assert len(whole) == 5
    assert [(bar.start_ms, bar.end_ms) for bar in joined] == [(0, 100), (100, 104), (104, 200)]
    assert joined[1].shares == {DECODING: 0.5, WAITING: 0.5}


def test_bars_end_where_the_window_and_the_worker_do() -> None:
    intervals = [Interval("w", TRAINING, 0, 50), Interval("w", TRAINING, 70, 200)]

    assert [(bar.start_ms, bar.end_ms) for bar in bars(intervals, (20, 90), 1)["w"]] == [
        (20, 50),
        (70, 90),
    ]
