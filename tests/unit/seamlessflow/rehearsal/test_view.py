"""The report of a rehearsal on the terminal."""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from seamlessflow.lab.calibration.recorded_run import Hops
from seamlessflow.rehearsal.rehearsal import Rehearsed
from seamlessflow.rehearsal.software import SoftwareTime
from seamlessflow.rehearsal.view import comparison, view
from seamlessflow.reports.outcome import RunOutcome

TOLD: dict[str, Any] = {
    "step_s": 0.4,
    "ideal_step_s": {"work": 0.2, "latency": 0.3},
    "train_wall_s": 4.0,
    "tokens_trained": 800,
    "device_time": {"decoding": 1.0},
    "max_staleness": 1,
    "role_switches": 2,
    "steps": 10,
    "processors": {},
    "peak_rss_mb": {},
}


def rehearsed(
    summary: Mapping[str, Any], untrained: str | None = None, scale: float = 0.1
) -> Rehearsed:
    software = SoftwareTime(hops=Hops([4]), turns=1, step_s=0.3)
    return Rehearsed(RunOutcome(Path("out"), summary, None), software, scale, None, (), untrained)


def shown(summary: Mapping[str, Any], untrained: str | None = None) -> str:
    console = Console(width=200, file=StringIO())
    with console.capture() as captured:
        console.print(view(rehearsed(summary, untrained)))
    return captured.get()


def test_times_are_those_of_the_devices() -> None:
    said = shown(TOLD)
    assert "4.00 s; no shorter than 2.00 s by work and 3.00 s by latency" in said
    assert "20 trained a second" in said


def test_each_of_several_policies_has_a_row() -> None:
    figures = {"steps": 5, "step_s": 0.8, "tokens_trained": 300}
    said = shown({**TOLD, "policies": {"coder": figures, "late": {**figures, "step_s": None}}})
    assert "coder  5 steps, one in 8.00 s, 300 tokens trained" in said
    assert "late  5 steps, 300 tokens trained" in said


def test_a_gang_without_room_is_told() -> None:
    outcome = RunOutcome(Path("out"), TOLD, None)
    software = SoftwareTime(hops=Hops([4]), turns=1, step_s=0.3)
    console = Console(width=200, file=StringIO())
    with console.capture() as captured:
        console.print(view(Rehearsed(outcome, software, 1, None, (), None, "it has no room")))
    assert "! it has no room" in captured.get()


def test_groups_that_were_not_trained_are_told() -> None:
    assert "! 98% of the groups" in shown(TOLD, "98% of the groups had equal rewards")


def test_rehearsals_are_compared_in_the_time_of_the_devices() -> None:
    first = {**TOLD, "device_time": {"decoding": 0.5, "training": 0.1, "waiting": 0.4}}
    second = {**TOLD, "step_s": 0.6, "device_time": {"decoding": 0.9, "switching": 0.1}}
    console = Console(width=200, file=StringIO())
    with console.capture() as captured:
        results = {"split": rehearsed(first), "moving": rehearsed(second, scale=0.2)}
        console.print(comparison(results))
    rows = [line.split() for line in captured.get().splitlines()]
    assert rows[1:] == [
        ["split", "10", "4.0", "s", "1.00", "40.0%", "40.0%", "0.0%", "0.0%"],
        ["moving", "10", "3.0", "s", "0.75", "10.0%", "0.0%", "0.0%", "10.0%"],
    ]
