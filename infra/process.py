"""The shell of a process: logging to standard error, signals that ask it to end, exit status.

SIGTERM or SIGINT sets the stop event that `main` waits for; the same signal once more ends the
process at once. An error that leaves `main`, or a thread, ends it with its traceback and status 1;
that Kafka is away when the process was asked to end is told in one line, with status 1 as well.
An error of this project that comes before `ready` is the user's to mend (a setting, a port, a
topic that is missing): it is told in one line, without a traceback. Called by every `__main__.py`.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from infra.cores import share_cores
from infra.errors import KafkaUnavailable, SeamlessFlowError

_ENDING = (signal.SIGTERM, signal.SIGINT)
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_log = logging.getLogger(__name__)
_ready = threading.Event()

AsyncMain = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
SyncMain = Callable[[threading.Event], None]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run(main: AsyncMain, loop_factory: LoopFactory | None = None) -> None:
    """Runs `main(stop)` on an event loop to its end."""

    async def until_stopped() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        with _handled(lambda: loop.call_soon_threadsafe(stop.set)):
            await main(stop)

    _set_up_logging()
    share_cores()
    with _explained(), _thread_failures(), asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(until_stopped())


def run_sync(main: SyncMain) -> None:
    """Runs `main(stop)` in this thread, the main one, to its end."""
    stop = threading.Event()
    _set_up_logging()
    share_cores()
    with _explained(), _thread_failures(), _handled(stop.set):
        main(stop)


def ready(log: logging.Logger, message: str, *facts: object) -> None:
    """Tells that the process does its work from now on."""
    _ready.set()
    log.info(message, *facts)


def _set_up_logging() -> None:
    logging.basicConfig(level=logging.INFO, format=_FORMAT, stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # else a line a call


@contextmanager
def _explained() -> Iterator[None]:
    """Ends a process that could not start with the reason alone."""
    _ready.clear()
    try:
        yield
    except SeamlessFlowError as error:
        if _ready.is_set():
            raise
        sys.exit(f"not started: {error}")


@contextmanager
def _handled(ask_to_end: Callable[[], object]) -> Iterator[None]:
    asked = threading.Event()

    def handle(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        _log.info("%s: ending", signal.Signals(number).name)
        asked.set()
        ask_to_end()

    before = {number: signal.signal(number, handle) for number in _ENDING}
    try:
        yield
    except KafkaUnavailable as error:
        if not asked.is_set():
            raise
        _log.error("ended without telling Kafka all it had to: %s", error)
        raise SystemExit(1) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _thread_failures() -> Iterator[None]:
    """Lets a thread's error end the process in order, and raises it then."""
    failures: list[BaseException] = []

    def failed(arguments: threading.ExceptHookArgs) -> None:
        name = arguments.thread.name if arguments.thread else "a thread"
        _log.error("%s failed", name, exc_info=arguments.exc_value)
        if arguments.exc_value is not None:
            failures.append(arguments.exc_value)
        os.kill(os.getpid(), signal.SIGTERM)

    before, threading.excepthook = threading.excepthook, failed
    try:
        yield
    finally:
        threading.excepthook = before
    if failures:
        raise failures[0]
