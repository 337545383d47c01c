import os
import signal
import subprocess
import sys

import pytest

from seamlessflow.infra.errors import ExitStatus
from tests.paths import ROOT

SYNC = """
import signal
from seamlessflow.infra.process import run_sync
def main(stop):
    print("up", flush=True)
    {body}
run_sync(main)
"""
ASYNC = """
import uvloop
from seamlessflow.infra.process import run
async def main(stop):
    print("up", flush=True)
    {body}
run(main{loop})
"""


INSIDE = """
import signal, sys, threading
inside = []
def trace(frame, event, _):
    if frame.f_code is threading.Event.wait.__code__ and event == "line":
        inside.append(frame.f_lineno)
        if len(inside) == 2:  # its lock is held
            signal.raise_signal(signal.SIGTERM)
    return trace
"""
"""Sends a signal to itself while `Event.wait` holds the lock of the event."""


def launched(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def started(code: str) -> subprocess.Popen[str]:
    """The process says "up" and goes on only as it is told; `communicate` would lose a line that
    came together with this one.
    """
    process = launched(code)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux alone has it")
@pytest.mark.parametrize("code", [SYNC, ASYNC.replace("{loop}", "")], ids=["sync", "asyncio"])
@pytest.mark.parametrize(
    ("chosen", "kept"), [("SCHED_OTHER", "SCHED_BATCH"), ("SCHED_IDLE", "SCHED_IDLE")]
)
def test_a_process_interrupts_nobody_when_it_wakes_unless_its_user_chose(
    code: str, chosen: str, kept: str
) -> None:
    choose = f"import os\nos.sched_setscheduler(0, os.{chosen}, os.sched_param(0))"
    process = started(choose + code.format(body=f"assert os.sched_getscheduler(0) == os.{kept}"))
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "code",
    [
        SYNC.format(body="stop.wait(); print('ended in order')"),
        ASYNC.format(body="await stop.wait(); print('ended in order')", loop=""),
        ASYNC.format(
            body="await stop.wait(); print('ended in order')", loop=", uvloop.new_event_loop"
        ),
    ],
    ids=["sync", "asyncio", "uvloop"],
)
def test_a_signal_ends_the_process_in_order_with_status_0(
    code: str, number: signal.Signals
) -> None:
    process = started(code)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "ended in order\n"), err


def test_a_signal_that_comes_in_the_middle_of_the_wait_ends_the_process() -> None:
    body = "sys.settrace(trace); stop.wait(); print('ended')"
    process = launched(INSIDE + SYNC.format(body=body))
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "up\nended\n"), err


@pytest.mark.parametrize(("body", "status"), [("pass", 0), ("stop.wait()", ExitStatus.PASSING)])
def test_the_status_of_a_finite_process_says_if_its_work_is_done(body: str, status: int) -> None:
    process = started(SYNC.format(body=body).replace("(main)", "(main, finite=True)"))
    if status:
        process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == status, err


def test_a_second_signal_ends_the_process_at_once() -> None:
    process = started(SYNC.format(body="stop.wait(); print('up', flush=True); signal.pause()"))
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("code", [SYNC, ASYNC.replace("{loop}", "")], ids=["sync", "asyncio"])
@pytest.mark.parametrize(
    ("begin", "missing"),
    [
        (
            "import logging; from seamlessflow.infra.process import ready; "
            "ready(logging.getLogger(), 'up')",
            True,
        ),
        ("pass", False),
    ],
    ids=["ready", "starting"],
)
def test_asked_to_end_while_kafka_is_away_it_says_so_in_a_line(
    code: str, begin: str, missing: bool
) -> None:
    wait = f"{begin}; await stop.wait()" if "async" in code else f"{begin}; stop.wait()"
    away = (
        "from seamlessflow.infra.errors import KafkaUnavailable; raise KafkaUnavailable('a:1', 10)"
    )
    process = started(code.format(body=f"{wait}; {away}"))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == ExitStatus.PASSING
    last = err.splitlines()[-1]
    what = "acknowledged all records" if missing else "answered"
    assert f"ended before Kafka {what}: no Kafka broker answered at a:1" in last
    assert "Traceback" not in err


@pytest.mark.parametrize("loop", ["", ", uvloop.new_event_loop"], ids=["asyncio", "uvloop"])
def test_a_signal_that_does_not_interrupt_the_wait_of_the_event_loop_ends_it(loop: str) -> None:
    """It came to another thread, as one may that comes just before the wait begins."""
    to_thread = "import signal, threading; get = threading.get_ident; "
    to_thread += "kill = lambda: signal.pthread_kill(get(), signal.SIGTERM); "
    body = f"{to_thread}threading.Timer(0.2, kill).start(); await stop.wait(); print('ended')"
    out, err = launched(ASYNC.format(body=body, loop=loop)).communicate(timeout=20)
    assert out == "up\nended\n", err


def test_an_error_ends_the_process_with_a_traceback_and_status_1() -> None:
    process = started(ASYNC.format(body="raise ValueError('broken')", loop=""))
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "ValueError: broken" in err


OURS = (
    "from seamlessflow.infra.errors import SeamlessFlowError; "
    "{}raise SeamlessFlowError('no such file')"
)
READY = (
    "import logging; from seamlessflow.infra.process import ready; "
    "ready(logging.getLogger(), 'ready'); "
)


def test_an_error_of_ours_before_the_process_is_ready_is_told_in_one_line() -> None:
    process = started(SYNC.format(body=OURS.format("")))
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (ExitStatus.LASTING, "not started: no such file\n")


def test_an_error_of_ours_after_the_process_is_ready_is_told_with_its_traceback() -> None:
    process = started(SYNC.format(body=OURS.format(READY)))
    _, err = process.communicate(timeout=20)
    assert process.returncode == ExitStatus.PASSING
    assert "INFO root: ready" in err
    assert "Traceback" in err


def test_a_lasting_fault_of_a_process_that_was_ready_is_told_in_one_line() -> None:
    raised = (
        "from seamlessflow.infra.errors import TopicMissing; raise TopicMissing('tasks', 'a:1')"
    )
    process = started(SYNC.format(body=READY + raised))
    _, err = process.communicate(timeout=20)
    assert process.returncode == ExitStatus.LASTING
    assert err.splitlines()[-1].startswith("ended: topic tasks is missing at a:1")
    assert "Traceback" not in err


def test_a_process_that_ends_by_an_error_keeps_its_status_if_it_is_asked_to_end_meanwhile() -> None:
    ask = "import atexit, os; atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM)); "
    process = started(SYNC.format(body=ask + OURS.format("")))
    process.communicate(timeout=20)
    assert process.returncode == ExitStatus.LASTING


def test_kafka_that_is_away_is_a_passing_fault_from_the_first_moment() -> None:
    raised = (
        "from seamlessflow.infra.errors import KafkaUnavailable; raise KafkaUnavailable('a:1', 10)"
    )
    process = started(SYNC.format(body=raised))
    process.communicate(timeout=20)
    assert process.returncode == ExitStatus.PASSING


def in_a_thread(raised: str) -> str:
    """Return a body whose thread raises an error once the process is asked to end."""
    begin = "import threading; from seamlessflow.infra.errors import KafkaUnavailable; stop.wait()"
    thread = f"threading.Thread(target=lambda: (_ for _ in ()).throw({raised}))"
    return f"{begin}; one = {thread}; one.start(); one.join()"


def test_a_thread_without_kafka_does_not_change_the_end_of_a_process_that_is_asked_to() -> None:
    away = "KafkaUnavailable('a:1', 10)"
    process = started(SYNC.format(body=f"{in_a_thread(away)}; raise {away}"))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=20)
    assert process.returncode == ExitStatus.PASSING
    assert "ended before Kafka answered" in err and "Traceback" not in err


def test_the_error_of_a_thread_while_the_process_ends_is_its_status() -> None:
    process = started(SYNC.format(body=f"{in_a_thread('ZeroDivisionError()')}; print('ended')"))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (1, "ended\n")
    assert "ZeroDivisionError" in err


def test_the_error_of_a_thread_ends_the_process_with_status_1() -> None:
    body = "import threading; threading.Thread(target=lambda: 1 / 0).start(); stop.wait()"
    process = started(SYNC.format(body=body))
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "ZeroDivisionError" in err
