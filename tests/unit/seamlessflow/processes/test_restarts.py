"""Decisions about a process that ended by itself."""

import signal

import pytest

from seamlessflow.config import RestartsSection
from seamlessflow.infra.errors import ExitStatus
from seamlessflow.processes.restarts import (
    EndRun,
    StartAgain,
    after_end,
    description,
    ended_by_client,
)

LIMITS = RestartsSection(most=3, within_s=600, pause_s=1, longest_pause_s=3)


@pytest.mark.parametrize(
    "status", [-signal.SIGKILL, -signal.SIGSEGV, 0, ExitStatus.UNEXPECTED, ExitStatus.PASSING]
)
def test_a_process_that_was_killed_or_failed_in_passing_starts_again(status: int) -> None:
    assert after_end(status, [], 1000, LIMITS) == StartAgain(pause_s=1, number=1)


def test_a_lasting_fault_ends_the_run_at_once() -> None:
    assert isinstance(after_end(ExitStatus.LASTING, [], 1000, LIMITS), EndRun)


def test_each_restart_waits_twice_as_long_as_the_one_before_up_to_a_limit() -> None:
    pauses_s = []
    for restarts in ([], [990.0], [990.0, 995.0]):
        decision = after_end(1, restarts, 1000, LIMITS)
        assert isinstance(decision, StartAgain)
        pauses_s.append(decision.pause_s)
    assert pauses_s == [1, 2, 3]


def test_too_many_restarts_in_a_short_time_end_the_run_and_name_the_setting() -> None:
    decision = after_end(1, [500, 600, 700], 1000, LIMITS)
    assert isinstance(decision, EndRun)
    assert "restarts.most: 3" in decision.reason


def test_restarts_of_long_ago_do_not_count() -> None:
    assert after_end(1, [100, 200, 400], 1000, LIMITS) == StartAgain(pause_s=1, number=1)
    assert after_end(1, [100, 401, 402], 1000, LIMITS) == StartAgain(pause_s=3, number=3)


def test_without_any_restarts_every_end_ends_the_run() -> None:
    assert isinstance(after_end(-9, [], 0, LIMITS.model_copy(update={"most": 0})), EndRun)


def test_the_signal_that_ended_a_process_is_named() -> None:
    assert description(-9) == "was ended by signal 9 (Killed)"
    assert description(75) == "ended with exit status 75"


STACKS = "Fatal Python error: Aborted\n\nThread 0x00007f (most recent call first):\n"
ASSERTED = (
    "python: rdkafka_queue.h:1086: rd_kafka_enq_once_del_source_return: "
    f"Assertion `eonce->refcnt > 0' failed.\n{STACKS}"
)
CRASHED = (
    f"*** rdkafka_buf.c:441:rd_kafka_buf_callback: assert: !request->rkbuf_response ***\n{STACKS}"
)


@pytest.mark.parametrize(
    ("log", "function"),
    [(ASSERTED, "rd_kafka_enq_once_del_source_return"), (CRASHED, "rd_kafka_buf_callback")],
)
def test_an_end_by_an_assertion_of_kafkas_client_is_known_by_its_last_words(
    log: str, function: str
) -> None:
    assert ended_by_client(-signal.SIGABRT, log) == function


@pytest.mark.parametrize(
    ("status", "log"),
    [
        (-signal.SIGKILL, ASSERTED),
        (ExitStatus.UNEXPECTED, ASSERTED),
        (-signal.SIGABRT, "Fatal Python error: Aborted\n"),
        (-signal.SIGABRT, "python: other.c:1: f: Assertion `x' failed.\n"),
    ],
)
def test_other_ends_are_not_the_clients(status: int, log: str) -> None:
    assert ended_by_client(status, log) == ""


def test_an_end_that_does_not_count_ends_no_run_but_waits_longer_each_time() -> None:
    limits = LIMITS.model_copy(update={"most": 1})
    pauses_s = []
    for restarts, uncounted in (([], []), ([990.0], []), ([980.0], [990.0]), ([], [100.0])):
        decision = after_end(-signal.SIGABRT, restarts, 1000, limits, uncounted)
        assert isinstance(decision, StartAgain)
        assert decision.number == 0
        pauses_s.append(decision.pause_s)
    assert pauses_s == [1, 2, 3, 1]


def test_without_any_restarts_such_an_end_ends_the_run_also() -> None:
    limits = LIMITS.model_copy(update={"most": 0})
    assert isinstance(after_end(-signal.SIGABRT, [], 1000, limits, []), EndRun)


MODULES = "Extension modules: confluent_kafka.cimpl, orjson (total: 2)\n"
WAITING = """Thread 0x00007f2 [main] (most recent call first):
  File "/app/scheduler/journal.py", line 9 in poll
"""
IN_CLIENT = """Current thread 0x00007f1 [group watch] (most recent call first):
  File "/app/infra/kafka/bounds.py", line 80 in _offsets
  File "/app/scheduler/group_watch.py", line 66 in _look
"""
ELSEWHERE = """Current thread 0x00007f1 [device] (most recent call first):
  File "/app/producers/rollout/torch_engine/engine.py", line 80 in step
"""


def segfault(*stacks: str, modules: str = MODULES) -> str:
    return "Fatal Python error: Segmentation fault\n\n" + "\n".join(stacks) + f"\n{modules}"


@pytest.mark.parametrize(
    ("log", "where"),
    [
        (segfault(WAITING, IN_CLIENT), "bounds.py"),
        (segfault(WAITING), "a thread of its own"),
        (segfault(WAITING, ELSEWHERE), ""),
        (segfault(WAITING, modules="Extension modules: confluent_kafka.cimpl, torch._C"), ""),
        (segfault(WAITING, modules="Extension modules: orjson (total: 1)"), ""),
        (segfault("Current thread 0x1 (most recent call first):\n  <no Python frame>"), ""),
        (segfault(IN_CLIENT) + segfault(ELSEWHERE), ""),
        ("killed\n" + MODULES, ""),
        ("", ""),
    ],
)
def test_a_segmentation_fault_of_kafkas_client_is_known_by_its_stacks(log: str, where: str) -> None:
    assert ended_by_client(-signal.SIGSEGV, log) == where
    assert ended_by_client(-signal.SIGKILL, log) == ""


def test_segmentation_faults_of_the_client_count_once_as_many_did_not() -> None:
    early, spared = [990.0, 991.0], [990.0, 991.0, 992.0]
    decision = after_end(-signal.SIGSEGV, [], 1000, LIMITS, early)
    assert decision == StartAgain(pause_s=3, number=0)
    assert after_end(-signal.SIGSEGV, [], 1000, LIMITS, spared) == StartAgain(pause_s=1, number=1)
    assert isinstance(after_end(-signal.SIGSEGV, spared, 1000, LIMITS, spared), EndRun)
    assert after_end(-signal.SIGSEGV, [], 9000, LIMITS, spared) == StartAgain(pause_s=1, number=0)
