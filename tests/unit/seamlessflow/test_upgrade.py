"""Processes that run, as `fleet` names them, and what they mean for the pin."""

from seamlessflow.schemas.records import Record
from seamlessflow.upgrade import SILENT_MS, RunningProcess, older, running, verdict
from tests.builders.records import fleet

NOW = 10 * SILENT_MS
GROUP = ["manager-m-requests"]


def at_work(release: str = "0.1.0") -> list[Record]:
    return [
        fleet.weights(),
        fleet.gateway("g", at_ms=NOW, release=release),
        fleet.heartbeat("w", "rollout", at_ms=NOW, release=release),
        fleet.heartbeat("w", "train", at_ms=NOW, release=release),
        fleet.snapshot(at_ms=NOW, release=release),
        fleet.manager(release=release),
    ]


def test_every_kind_of_process_is_found_with_its_release() -> None:
    assert running(at_work(), GROUP, NOW) == [
        RunningProcess("gateway g", "0.1.0"),
        RunningProcess("manager manager-m", "0.1.0"),
        RunningProcess("rollout process of w", "0.1.0"),
        RunningProcess("scheduler", "0.1.0"),
        RunningProcess("train process of w", "0.1.0"),
    ]


def test_processes_that_are_gone_do_not_count() -> None:
    later = NOW + SILENT_MS

    assert running(at_work(""), [], later) == []
    assert running(at_work(""), ["manager-m2-requests"], later) == []


def test_the_last_record_of_a_process_counts() -> None:
    records = [*at_work(""), *at_work("0.2.0")]

    assert {process.release for process in running(records, GROUP, NOW)} == {"0.2.0"}


def test_the_pin_can_go_once_no_process_is_older() -> None:
    assert verdict(running(at_work(), GROUP, NOW), "0.1.0").startswith("5 of 5 processes read")
    assert older(running(at_work("0.2.0"), GROUP, NOW), "0.1.0") == []


def test_processes_that_are_older_or_say_no_release_are_named() -> None:
    records = [*at_work(), fleet.gateway("old", at_ms=NOW), fleet.gateway("g", at_ms=NOW)]

    said = verdict(running(records, GROUP, NOW), "0.1.0")

    assert said.startswith("2 of 6 processes cannot read release 0.1.0 yet: gateway g, gateway old")
    assert str(RunningProcess("gateway old", "")) == "gateway old: older than 0.1.0"


def test_silence_does_not_mean_that_the_pin_can_go() -> None:
    assert verdict([], "0.1.0") == "no process has reported on fleet within 30 s"
