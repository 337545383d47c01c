"""A process's shell: logging to standard error, signals that ask it to end, exit status.

SIGTERM or SIGINT sets the stop event that `main` waits for. The same signal once more ends the
process at once.

The exit status (`ExitStatus`) says if another start may help. This project's errors end with status
75 (passing) or 78 (lasting). Any other error, in `main` or in a thread, ends with a traceback and
status 1. Lasting faults and errors before `ready` are printed as one line without a traceback. So
is an outage of Kafka while the process ends.

A supervisor that asks for signs of life gets them (`infra/life_signs.py`). It ends a process that
gives none with SIGABRT, which prints where each thread stands. Called by every `__main__.py`.
"""

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from seamlessflow.infra import life_signs
from seamlessflow.infra.errors import ExitStatus, KafkaUnavailable, SeamlessFlowError
from seamlessflow.infra.host import asked_to_end, share_cores
from seamlessflow.infra.printable import printable

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_GC_THRESHOLDS = (50_000, 20, 100)
_log = logging.getLogger(__name__)
_ready = threading.Event()
_asked: list[int] = []
"""Signals that asked this process to end. Not an event, whose lock a signal may find held."""

AsyncMain = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
SyncMain = Callable[[threading.Event], None]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def collect_seldom(thresholds: tuple[int, int, int] = _GC_THRESHOLDS) -> None:
    """Exempt the objects made so far from garbage collection, and collect more rarely from now on.

    This is for processes that keep or make much in memory without cycles. The default thresholds
    halve a rebuild's speed.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*thresholds)


def run(main: AsyncMain, loop_factory: LoopFactory | None = None) -> None:
    """Run `main(stop)` on an event loop to its end."""

    async def until_stopped() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        ended = _handled(lambda: loop.call_soon_threadsafe(stop.set))
        with ended, _woken_by_signals(loop), life_signs.of_loop():
            await main(stop)

    _set_up_logging()
    share_cores()
    with _explained(), _thread_failures(), asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(until_stopped())


def run_sync(main: SyncMain, finite: bool = False) -> None:
    """Run `main(stop)` to its end in this thread, which must be the main one.

    A `finite` process ends by itself, with status 0. If it is asked to end before, it ends with
    status 75. So a supervisor does not believe that its work is done.
    """
    stop = threading.Event()
    _set_up_logging()
    share_cores()
    with _explained(), _thread_failures(), _handled(stop.set), life_signs.of_threads():
        main(stop)
    if finite and stop.is_set():
        raise SystemExit(ExitStatus.PASSING)


def ready(log: logging.Logger, message: str, *facts: object) -> None:
    """Log that the process does its work from now on; later errors show their traceback."""
    _ready.set()
    log.info(message, *facts)


class _PrintableLines(logging.Formatter):
    """Log lines that a terminal shows and does not obey, whatever text they quote."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def _set_up_logging() -> None:
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(_PrintableLines(_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[output])
    faulthandler.enable()
    logging.getLogger("httpx").setLevel(logging.WARNING)  # otherwise one line for each call


@contextmanager
def _explained() -> Iterator[None]:
    """Exit with an error's status, and with its traceback only where that helps."""
    _ready.clear()
    _asked.clear()
    try:
        yield
    except SeamlessFlowError as error:
        # It ends in any case. A supervisor that saw another process end may ask this one to end
        # too, which would only replace the status that says why.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        status = error.process_status(_ready.is_set())
        if not _ready.is_set():
            _print(f"not started: {error}")
        elif status is ExitStatus.LASTING:
            _print(f"ended: {error}")
        else:
            _log.critical("ended by an error", exc_info=error)
        raise SystemExit(status) from error


def _print(line: str) -> None:
    with suppress(OSError):  # a full disk must not change the exit status
        print(printable(line), file=sys.stderr)


@contextmanager
def _handled(ask_to_end: Callable[[], object]) -> Iterator[None]:
    """Call `ask_to_end` at the first signal; restore the handlers at the end."""

    def handle(number: int) -> None:
        signal.signal(number, signal.SIG_DFL)  # the same signal again ends the process at once
        _asked.append(number)

    def answer(number: int) -> None:
        _log.info("%s: ending", signal.Signals(number).name)
        ask_to_end()

    with asked_to_end(handle, answer):
        try:
            yield
        except KafkaUnavailable as error:
            if not _asked:
                raise
            missing = "acknowledged all records" if _ready.is_set() else "answered"
            _log.error("ended before Kafka %s: %s", missing, error)
            raise SystemExit(ExitStatus.PASSING) from error


@contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Make each signal end the loop's wait.

    A signal may come just before a wait begins, or to another thread. It would then be handled only
    at the wait's end.
    """
    woken, wake = socket.socketpair()
    with woken, wake:
        wake.setblocking(False)
        before = signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        if before != -1:  # uvloop has one of its own
            signal.set_wakeup_fd(before)
            yield
            return
        loop.add_reader(woken, woken.recv, 64)
        try:
            yield
        finally:
            loop.remove_reader(woken)
            signal.set_wakeup_fd(before)


@contextmanager
def _thread_failures() -> Iterator[None]:
    """Ask the process to end after a thread's error, then raise that error.

    If the process is about to end already, an outage of Kafka is no thread's error. The code that
    waits for a send reports what was not sent.
    """
    failures: list[BaseException] = []

    def failed(arguments: threading.ExceptHookArgs) -> None:
        name = arguments.thread.name if arguments.thread else "a thread"
        error = arguments.exc_value
        if _asked and isinstance(error, KafkaUnavailable):
            _log.error("%s: %s", name, error)
            return
        _log.error("%s failed", name, exc_info=error)
        if error is not None:
            failures.append(error)
        if not _asked:  # the same signal again would end it at once
            os.kill(os.getpid(), signal.SIGTERM)

    before = threading.excepthook
    threading.excepthook = failed
    try:
        yield
    finally:
        threading.excepthook = before
    if failures:
        raise failures[0]
