"""Restarts: on a full disk they wait for room; those for a fault of Kafka's client do not count."""

from pathlib import Path

import pytest

from seamlessflow.config import RestartsSection
from seamlessflow.processes.child import ChildEnded
from seamlessflow.processes.supervisor import EndedPart, Supervisor

FULL = Path("/dev/full")
"""A file that takes no byte."""
LIMITS = RestartsSection(pause_s=0, free_mb=1)
MIB = 1024 * 1024


def test_a_restart_waits_until_the_disk_has_room_and_then_happens_once() -> None:
    free, started, notices = [0], [0], list[str]()

    def start() -> None:
        started[0] += 1

    supervisor = Supervisor(LIMITS, notices.append, free=lambda _: free[0])
    supervisor.ended(EndedPart("broker", 1, FULL, "No space left on device"), start)
    for _ in range(3):
        supervisor.start_due()
    assert (started, supervisor.plans("broker")) == ([0], True)
    assert [notice.split(":")[0] for notice in notices] == [
        "broker ended with exit status 1; it starts again in 0 s (restart 1 of at most 5 in 600 s)",
        "broker waits for room",
    ]
    free[0] = MIB
    for _ in range(3):
        supervisor.start_due()
    assert (started, supervisor.plans("broker")) == ([1], False)
    assert supervisor.counts == {"broker": 1}


def test_ends_by_a_fault_of_kafkas_client_do_not_use_up_the_restarts(tmp_path: Path) -> None:
    notices = list[str]()
    limits = RestartsSection(most=1, pause_s=0, free_mb=0)
    supervisor = Supervisor(limits, notices.append)
    aborted = EndedPart("scheduler", -6, tmp_path / "log", "", client_fault="rd_kafka_f")
    for _ in range(3):
        supervisor.ended(aborted, lambda: None)
    supervisor.ended(EndedPart("scheduler", 1, tmp_path / "log", ""), lambda: None)
    assert notices[0] == (
        "scheduler was ended by signal 6 (Aborted), a fault of Kafka's client in rd_kafka_f; it "
        "starts again in 0 s (a restart that does not count)"
    )
    assert "(restart 1 of at most 1 in 600 s)" in notices[-1]
    assert supervisor.counts == {"scheduler": 4}


def test_segmentation_faults_of_kafkas_client_end_the_run_if_they_do_not_stop(
    tmp_path: Path,
) -> None:
    limits = RestartsSection(most=2, pause_s=0, free_mb=0)
    supervisor = Supervisor(limits, lambda _: None)
    crashed = EndedPart("scheduler", -11, tmp_path / "log", "", client_fault="bounds.py")
    for _ in range(4):
        supervisor.ended(crashed, lambda: None)
    with pytest.raises(ChildEnded, match=r"restarts\.most: 2"):
        supervisor.ended(crashed, lambda: None)
