"""The cluster of a run, as a plan takes it from the records."""

from dataclasses import replace

from seamlessflow.lab.simulation.measured_step import MeasuredStep
from seamlessflow.lab.simulation.split_plan import SplitChoice, advice, planned
from seamlessflow.scheduler.state.accounts.closed_form import Prediction, StepWork
from seamlessflow.scheduler.state.accounts.device_time import DeviceTime

RUN = MeasuredStep(
    work=StepWork(rollout=3, train=1),
    steps=4,
    step_s=1,
    spent=DeviceTime(),
    devices=4,
    gang=2,
    unit=1,
    changes=True,
    lag=3,
)


def test_strategy_and_lag_are_those_of_the_run() -> None:
    cluster, note = planned(RUN, None, None)

    assert (cluster.strategy, cluster.gang, cluster.lag) == ("multiplexed", 2, 3)
    assert note == (
        "the run is taken as multiplexed, since workers changed their roles; "
        "lag 3, as its trainer recorded"
    )


def test_what_no_record_tells_is_said_to_be_assumed() -> None:
    cluster, note = planned(replace(RUN, changes=False, lag=None), None, None)

    assert (cluster.strategy, cluster.lag) == ("disaggregated", 1)
    assert note.endswith("no worker changed its role; lag 1, assumed")


def test_what_is_given_counts_and_is_not_told() -> None:
    cluster, note = planned(RUN, "colocated", 0)

    assert (cluster.strategy, cluster.lag, note) == ("colocated", 0, "")


def test_equal_idle_shares_are_not_compared() -> None:
    cluster, _ = planned(RUN, None, None)
    now, best = Prediction(4.13, 0.891, "work"), Prediction(3.91, 0.889, "work")
    choices = [SplitChoice("multiplexed", 2, 3, now), SplitChoice("multiplexed", 1, 3, best)]

    split, _ = advice(cluster, choices)
    assert split.endswith("takes 3.91 s a step instead of 4.13 s.")
