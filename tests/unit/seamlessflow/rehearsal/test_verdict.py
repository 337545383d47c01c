"""A rehearsal's verdict: when this machine distorted it, and which process is full first."""

from seamlessflow.lab.calibration.recorded_run import Hops
from seamlessflow.processes.usage import ProcessLoad
from seamlessflow.rehearsal.software import SoftwareTime
from seamlessflow.rehearsal.verdict import (
    NearestLimit,
    distortions,
    modelled_step_s,
    nearest_limit,
    untrained,
)

CALM = {"broker": ProcessLoad(0.8, 0.01), "gateway": ProcessLoad(0.5, 0.02)}


def software(*hops_ms: int, delays_ms: tuple[int, ...] = (), step_s: float = 2.0) -> SoftwareTime:
    return SoftwareTime(hops=Hops(hops_ms), turns=4, step_s=step_s, delays_ms=delays_ms)


def test_figures_of_processes_that_found_a_processor_at_once_are_trusted() -> None:
    assert distortions(CALM, software(4, 6)) == []


def test_a_process_that_waits_for_a_processor_distorts() -> None:
    (reason,) = distortions(CALM | {"manager": ProcessLoad(0.4, 0.12)}, software(5))
    assert reason == "manager waited for a processor during 12.0% of the time"


def test_software_that_takes_a_noticeable_part_of_a_step_distorts() -> None:
    (reason,) = distortions(CALM, software(10, 20))
    assert reason.startswith("software took 6.0% of a modelled step of 2.00 s: 4.0 turns")


def test_the_delay_of_a_step_counts_beside_the_way_of_its_turns() -> None:
    assert software(10, delays_ms=(10, 30)).share == 0.05
    assert distortions(CALM, software(10, delays_ms=(10, 30))) == []
    (reason,) = distortions(CALM, software(10, delays_ms=(30, 50)))
    assert "6.0%" in reason and "40 ms from a batch's last group" in reason


def test_software_is_no_part_of_a_step_that_there_is_not() -> None:
    assert software(step_s=0.0).share == 0


def test_the_broker_may_fill_all_processors_and_others_one() -> None:
    assert nearest_limit(CALM, processors=2) == NearestLimit("gateway", 2.0)
    assert nearest_limit(CALM, processors=1) == NearestLimit("broker", 1.25)
    assert nearest_limit({"gateway": ProcessLoad(0, 0)}, 2) is None


def test_a_modelled_step_of_several_policies_is_that_of_the_one_with_the_most() -> None:
    summary = {"steps": 30, "ideal_step_s": {"work": 2.0, "latency": 1.0}}
    assert modelled_step_s(summary) == 2.0
    policies = {"planner": {"steps": 20}, "coder": {"steps": 10}}
    assert modelled_step_s({**summary, "policies": policies}) == 3.0
    assert modelled_step_s({"steps": 0, "ideal_step_s": {}, "policies": {}}) == 0


def test_groups_that_were_not_trained_are_told_with_what_to_set() -> None:
    notice = untrained({"groups_left_out": {"zero_variance": 0.98}})
    assert notice is not None and notice.startswith("98% of the groups had equal rewards")
    assert "{untrainable: drop}" in notice
    for few in ({}, {"zero_variance": 0.05}, {"untrainable": 1.0}):
        assert untrained({"groups_left_out": few}) is None
