"""A process's host: cores, free memory, the device `auto`, and signals that ask it to end.

A signal's handler may interrupt any code. Suppose it sets an event, and interrupts `Event.wait`
while that holds the event's lock. Then it waits for ever. Therefore a thread makes such calls.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue


def share_cores() -> None:
    """Put this thread, and all that it starts, into Linux's scheduling class `SCHED_BATCH`.

    A record wakes a process at every hop. When all cores are busy, each wake-up would interrupt a
    computing process for one record. In `SCHED_BATCH` a process waits its turn and then finds
    several records. On two cores gateway, broker, manager and worker then take 2,000 instead of
    1,300 calls a second, with two thirds of the CPU. While a core is free, nothing changes. A class
    that the user chose stays. Does nothing if the kernel refuses or has no such class.
    """
    if not hasattr(os, "sched_setscheduler"):
        return
    with suppress(OSError):
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def device_named(setting: str, has_gpu: Callable[[], bool]) -> str:
    """Return a setting's device; `auto` is a GPU if there is one, else the CPU.

    `has_gpu` is only called for `auto`, since the answer takes a moment.
    """
    if setting != "auto":
        return setting
    return "cuda" if has_gpu() else "cpu"


def free_host_bytes() -> int:
    """Return how many bytes of host memory no program uses: what a worker on a CPU has free."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def ending_signals() -> list[signal.Signals]:
    """Return the signals that ask this process to end.

    SIGHUP, which says that the terminal has gone, is one of them, unless the process was started
    to outlive its terminal, for example by nohup.
    """
    hung_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hung_up else [])]


@contextmanager
def asked_to_end(
    at_once: Callable[[int], object], beside: Callable[[int], object]
) -> Iterator[None]:
    """Call both with a signal's number: `at_once` in its handler, `beside` in a thread.

    Restores the handlers at the end.
    """
    asked: SimpleQueue[int | None] = SimpleQueue()  # its `put` may interrupt another one

    def handle(number: int, _: object) -> None:
        at_once(number)
        asked.put(number)

    def answer() -> None:
        while (number := asked.get()) is not None:
            beside(number)

    thread = threading.Thread(target=answer, name="asked to end", daemon=True)
    thread.start()
    before = {number: signal.signal(number, handle) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        asked.put(None)
        thread.join()
