"""The load of processes: what their threads computed and waited between two measurements."""

import os

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
    before = {(7, 1): ThreadTime(10, 1), (7, 2): ThreadTime(5, 5)}
    after = {(7, 1): ThreadTime(12, 2), (7, 2): ThreadTime(9, 5.5), (7, 3): ThreadTime(2, 0)}
    assert loads({"gateway": 7}, before, after, 4) == {"gateway": ProcessLoad(2, 0.125)}


def test_the_wait_of_a_thread_that_did_nothing_does_not_count() -> None:
    before = {(7, 1): ThreadTime(10, 1), (7, 2): ThreadTime(5, 5)}
    after = {(7, 1): ThreadTime(12, 2), (7, 2): ThreadTime(5, 9)}
    assert loads({"gateway": 7}, before, after, 4) == {"gateway": ProcessLoad(0.5, 0.25)}
    assert loads({"gateway": 7}, before, before, 4) == {"gateway": ProcessLoad(0, 0)}


def test_a_thread_that_ended_and_a_process_that_is_gone_are_not_counted() -> None:
    before = {(7, 1): ThreadTime(10, 1), (7, 2): ThreadTime(5, 5)}
    after = {(7, 1): ThreadTime(11, 1)}
    assert loads({"a": 7, "gone": 8}, before, after, 2) == {"a": ProcessLoad(0.5, 0)}


def test_a_process_measures_itself() -> None:
    me = {"me": os.getpid()}
    meter = LoadMeter(me)
    until(lambda: meter.loads(me)["me"].computed > 0, "a load", 30)
    assert peak_rss_mb("self") > 1


def test_a_process_that_does_not_exist_has_no_times() -> None:
    assert thread_times([2**30]) == {}
    assert peak_rss_mb(2**30) == 0
