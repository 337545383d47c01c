"""Device time by category, of one worker and of random histories."""

from random import Random

import hypothesis
import pytest
from hypothesis import strategies as st

from seamlessflow.scheduler.state.accounts.device_time import (
    CATEGORIES,
    DECODING,
    LOADING,
    RECOMPUTING,
    SWITCHING,
    TRAINING,
    UNDER_FILLED,
    WAITING,
    DeviceTime,
    together,
)
from seamlessflow.scheduler.state.timeline import timeline
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.seed import seed
from tests.unit.scheduler.state.accounts.histories import History

ROLLING_OUT: list[Record] = [
    control.joined("w", at_ms=0, devices=(0, 1)),
    control.assigned("w", at_ms=0),
    control.acquired("w", at_ms=0),
]


def spent(*records: Record, until_ms: int) -> DeviceTime:
    """Return the device time of worker `w` from 0 to `until_ms`."""
    return timeline([*records, control.ready(at_ms=until_ms)]).device_time((0, until_ms))["w"]


def test_decoding_counts_as_useful_as_far_as_full_batches_would_have_taken_it() -> None:
    report = control.usage(
        decoding_ms=80, idle_ms=20, full_batch_ms=30, recomputing_ms=10, from_ms=0, at_ms=100
    )

    device_time = spent(*ROLLING_OUT, report, until_ms=100)

    assert device_time.ms == {DECODING: 60, RECOMPUTING: 20, UNDER_FILLED: 80, WAITING: 40}
    assert device_time.idle_share == pytest.approx(0.7)


def test_one_straggler_is_not_busy() -> None:
    report = control.usage(decoding_ms=100, full_batch_ms=3, at_ms=100)

    assert spent(*ROLLING_OUT, report, until_ms=100).idle_share == pytest.approx(0.97)


def test_a_report_counts_for_the_part_of_its_stretch_that_was_spent_in_rollout() -> None:
    report = control.usage(decoding_ms=50, loading_ms=50, full_batch_ms=50, at_ms=100)
    load = [control.paused(at_ms=40), control.resumed(at_ms=90)]

    device_time = spent(*ROLLING_OUT, *load, report, until_ms=100)

    assert device_time.ms == {DECODING: 100, LOADING: 100}


def test_rollout_of_which_no_report_tells_is_waiting() -> None:
    report = control.usage(decoding_ms=10, full_batch_ms=10, from_ms=20, at_ms=30)

    device_time = spent(*ROLLING_OUT, report, until_ms=50)

    assert device_time.ms == {DECODING: 20, WAITING: 80}


def test_passes_that_took_longer_than_the_activity_count_no_more_than_it() -> None:
    report = control.usage(decoding_ms=50, full_batch_ms=60, recomputing_ms=20, at_ms=50)

    assert spent(*ROLLING_OUT, report, until_ms=50).ms == {DECODING: 60, RECOMPUTING: 40}


def test_of_a_gang_only_the_own_part_of_each_member_is_training() -> None:
    records = [
        *(control.joined(name, "train", at_ms=0) for name in ("fast", "slow")),
        control.started(["fast", "slow"], at_ms=20),
        # The step lies in two reports.
        control.usage("fast", "train", from_ms=0, at_ms=60, training_ms=40, computing_ms=20),
        control.usage("fast", "train", from_ms=60, at_ms=120, training_ms=60, computing_ms=0),
        control.usage("slow", "train", from_ms=0, at_ms=130, training_ms=100, computing_ms=100),
        control.completed(at_ms=140, metrics={"publish_s": 0.01}),
    ]

    run = timeline(records)

    assert {
        worker: device_time.ms for worker, device_time in run.device_time((20, 140)).items()
    } == {
        "fast": pytest.approx({TRAINING: 20 + 10, WAITING: 20 + 60, LOADING: 10}),
        "slow": pytest.approx({TRAINING: 100, WAITING: 10, LOADING: 10}),
    }


def test_a_step_without_a_report_is_training() -> None:
    step = [control.started(["w"], at_ms=20), control.completed(at_ms=70)]

    run = timeline([control.joined("w", "train", at_ms=0), *step])

    assert run.device_time((0, 70))["w"].ms == {WAITING: 20, TRAINING: 50}


def test_device_times_of_workers_add_up() -> None:
    both = together([DeviceTime({TRAINING: 30.0, WAITING: 10.0}), DeviceTime({SWITCHING: 60.0})])

    assert (both.total, both.useful) == (100, 30)
    assert both.idle_share == pytest.approx(0.7)
    assert both.shares()[SWITCHING] == pytest.approx(0.6)
    assert (DeviceTime().idle_share, DeviceTime().shares()) == (0, {})


@hypothesis.seed(seed)
@hypothesis.settings(max_examples=60, deadline=None, database=None, print_blob=True)
@hypothesis.given(st.randoms(use_true_random=False), st.integers(0, 60))
def test_categories_sum_to_devices_times_the_time_that_a_worker_was_there(
    choices: Random, actions: int
) -> None:
    history = History(choices)
    for _ in range(actions):
        history.act()
    window = sorted(choices.randint(0, history.now_ms + 10) for _ in range(2))

    times = timeline([*history.records, control.ready(at_ms=history.now_ms)]).device_time(
        (window[0], window[1])
    )

    for worker in history.workers:
        ms = times.get(worker.name, DeviceTime()).ms
        assert set(ms) <= set(CATEGORIES) and min(ms.values(), default=0) >= 0
        there_ms = worker.device_ms(window[0], min(window[1], history.now_ms))
        assert sum(ms.values()) == pytest.approx(there_ms)
