"""The simulator against the closed form of a step: no variance, no costs of weights.

A step takes R seconds of device time to roll out and T to train on 64 devices. Colocated:
(R + T) / 64. Disaggregated: R / rollout devices + T / train devices, one step off the larger of the
two. Multiplexed with lag: (R + T) / 64, but at least T / train devices.
"""

from pathlib import Path
from random import Random

import pytest

from seamlessflow.lab.simulation.figures import figures
from seamlessflow.lab.simulation.simulator import simulate, simulate_going_on
from seamlessflow.scheduler.settings import (
    PacingSection,
    RunSection,
    SchedulerSection,
    SchedulerSettings,
)
from seamlessflow.scheduler.state.accounts.closed_form import StepWork, predicted
from tests.builders.scheduler.cluster import cluster, workload
from tests.builders.scheduler.inputs import BOTH, scheduler_settings

B, SIZE, DEVICES = 64, 8, 64


@pytest.mark.parametrize(
    ("strategy", "lag", "rollout_s", "train_s", "train", "tags", "turns", "steps", "step_s"),
    [
        ("colocated", 0, 900, 300, 64, BOTH, 1, 11, 18.75),
        ("disaggregated", 0, 900, 300, 32, ("train",), 1, 11, 37.5),
        ("disaggregated", 1, 900, 300, 32, ("train",), 1, 11, 28.125),
        # The first ten steps are shorter: what is begun grows from batch to batch.
        ("multiplexed", 1, 900, 300, 32, BOTH, 1, 21, 18.75),
        ("multiplexed", 1, 900, 300, 32, BOTH, 8, 11, 18.75),
        ("multiplexed", 1, 600, 100, 8, BOTH, 1, 11, 12.5),
    ],
)
def test_a_step_takes_what_the_device_time_says(
    strategy: str,
    lag: int,
    rollout_s: float,
    train_s: float,
    train: int,
    tags: tuple[str, ...],
    turns: int,
    steps: int,
    step_s: float,
) -> None:
    work = StepWork(rollout=rollout_s, train=train_s)
    settings = of_strategy(strategy, steps, lag)
    workers = {f"w{n}": tags if n < train else ("rollout",) for n in range(DEVICES)}
    samples = B * SIZE
    modelled = cluster(workers, 1000 * rollout_s / samples, 1000 * train_s, samples, turns=turns)

    result = figures(simulate(settings, modelled, workload(turns)), settings)

    assert result is not None
    assert result.step_s == pytest.approx(step_s, rel=0.02)
    assert predicted(strategy, DEVICES, train, work, lag).step == pytest.approx(step_s)


@pytest.mark.parametrize(
    ("strategy", "lag"),
    [
        ("colocated", 0),
        ("disaggregated", 0),
        ("disaggregated", 1),
        ("multiplexed", 0),
        ("multiplexed", 1),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_drawn_split_and_work_take_what_the_closed_form_says(
    strategy: str, lag: int, seed: int
) -> None:
    draws = Random(f"{strategy}/{lag}/{seed}")
    devices, groups = draws.choice((4, 8)), 16
    gang = devices if strategy == "colocated" else draws.randrange(1, devices)
    # Many samples for each device, so that it matters little that they are whole ones.
    samples = groups * SIZE
    work = StepWork(
        rollout=draws.uniform(200, 1000),
        train=draws.uniform(50, 400),
        switch=0.0 if strategy == "disaggregated" else draws.uniform(0, 4),
    )
    tags = ("train",) if strategy == "disaggregated" else BOTH
    modelled = cluster(
        {f"w{n}": tags if n < gang else ("rollout",) for n in range(devices)},
        1000 * work.rollout / samples,
        1000 * work.train,
        samples,
        switch_ms=1000 * work.switch / 2,
    )
    settings = of_strategy(strategy, 8, lag, groups)

    result = figures(simulate_going_on(settings, modelled, workload()), settings)

    assert result is not None
    step_s = predicted(strategy, devices, gang, work, lag).step
    assert result.step_s == pytest.approx(step_s, rel=0.05)


def of_strategy(strategy: str, steps: int, lag: int, groups: int = B) -> SchedulerSettings:
    return scheduler_settings(
        RunSection(steps=steps, groups_per_step=groups, group_size=SIZE, lag=lag),
        SchedulerSection(policy=strategy, min_dwell_s=0),
        PacingSection(tasks=Path("made up")),
    )


@pytest.mark.parametrize("steps", [6, 12])
def test_idle_share_and_ideal_step_are_of_the_same_steps_as_the_step_time(steps: int) -> None:
    settings = of_strategy("multiplexed", steps, 1)
    workers = {f"w{n}": BOTH if n < 10 else ("rollout",) for n in range(DEVICES)}
    modelled = cluster(workers, 1000 * 600 / (B * SIZE), 1000 * 100, B * SIZE)

    run = simulate_going_on(settings, modelled, workload())
    result = figures(run, settings)

    assert result is not None
    assert len(run.tokens) == steps
    assert result.ideal_s == pytest.approx(700 / DEVICES, rel=0.01), "no work is left out"
    assert result.spent.idle_share == pytest.approx(1 - 700 / DEVICES / result.step_s, abs=0.01)
