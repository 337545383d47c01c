"""A rehearsal's verdict: when this machine distorted it, and which process is full first."""

from seamlessflow.processes.usage import ProcessLoad
from seamlessflow.rehearsal.hops import Hops
from seamlessflow.rehearsal.verdict import NearestLimit, distortions, nearest_limit

CALM = {"broker": ProcessLoad(0.8, 0.01), "gateway": ProcessLoad(0.5, 0.02)}


def test_figures_of_processes_that_found_a_processor_at_once_are_trusted() -> None:
    assert distortions(CALM, Hops([4, 6]), turns=4, step_s=2.0) == []


def test_a_process_that_waits_for_a_processor_distorts() -> None:
    (reason,) = distortions(CALM | {"manager": ProcessLoad(0.4, 0.12)}, Hops([5]), 4, 2.0)
    assert reason == "manager waited for a processor during 12.0% of the time"


def test_software_that_takes_a_noticeable_part_of_a_step_distorts() -> None:
    (reason,) = distortions(CALM, Hops([10, 20]), turns=4, step_s=2.0)
    assert reason.startswith("software took 6.0% of a step: 4.0 turns of a session, each 15 ms")


def test_the_broker_may_fill_all_processors_and_others_one() -> None:
    assert nearest_limit(CALM, processors=2) == NearestLimit("gateway", 2.0)
    assert nearest_limit(CALM, processors=1) == NearestLimit("broker", 1.25)
    assert nearest_limit({"gateway": ProcessLoad(0, 0)}, 2) is None
