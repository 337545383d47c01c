"""The load of processes: what their threads computed and waited between two measurements."""

import os
import signal
import subprocess
import sys

from seamlessflow.processes.usage import (
    LoadMeter,
    ProcessLoad,
    ThreadTime,
    loads,
    peak_rss_mb,
    thread_times,
)
from tests.waiting import until


def test_a_load_is_all_computing_and_the_mean_wait_of_the_threads_by_what_they_computed() -> None:
    before = {("gateway", 7, 1): ThreadTime(10, 1), ("gateway", 7, 2): ThreadTime(5, 5)}
    after = {
        ("gateway", 7, 1): ThreadTime(12, 2),
        ("gateway", 7, 2): ThreadTime(9, 5.5),
        ("gateway", 7, 3): ThreadTime(2, 0),
    }
    assert loads(before, after, 4) == {"gateway": ProcessLoad(2, 0.125)}


def test_the_wait_of_a_thread_that_did_nothing_does_not_count() -> None:
    before = {("gateway", 7, 1): ThreadTime(10, 1), ("gateway", 7, 2): ThreadTime(5, 5)}
    after = {("gateway", 7, 1): ThreadTime(12, 2), ("gateway", 7, 2): ThreadTime(5, 9)}
    assert loads(before, after, 4) == {"gateway": ProcessLoad(0.5, 0.25)}
    assert loads(before, before, 4) == {"gateway": ProcessLoad(0, 0)}


def test_both_lives_of_a_process_that_was_started_again_count() -> None:
    before = {("manager", 7, 1): ThreadTime(10, 1)}
    after = {("manager", 7, 1): ThreadTime(11, 1), ("manager", 8, 1): ThreadTime(3, 0)}
    assert loads(before, after, 2) == {"manager": ProcessLoad(2, 0)}


def test_a_process_measures_itself() -> None:
    me = {"me": os.getpid()}
    meter = LoadMeter(me)
    until(lambda: meter.loads(me)["me"].computed > 0, "a load", 30)
    assert peak_rss_mb("self") > 1


def test_a_process_that_ended_counts_up_to_the_last_look_at_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        meter = LoadMeter({"trainer": child.pid})
        until(lambda: meter.loads({"trainer": child.pid})["trainer"].computed > 0, "a load", 30)
        child.kill()
    assert meter.loads({})["trainer"].computed > 0


def test_the_processes_of_a_session_count_to_its_leader() -> None:
    program = "import os\nif os.fork():\n    os.wait()\nwhile True:\n    pass"
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as leader:
        try:
            until(lambda: _others_computed(leader.pid) > 0, "a further process's time", 30)
        finally:
            os.killpg(leader.pid, signal.SIGKILL)


def test_a_process_that_does_not_exist_has_no_times() -> None:
    assert thread_times({"gone": 2**30}) == {}
    assert peak_rss_mb(2**30) == 0


def _others_computed(leader: int) -> float:
    times = thread_times({"trainer": leader})
    return sum(time.computed_s for (_, pid, _), time in times.items() if pid != leader)
