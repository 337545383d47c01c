"""The machine of a process: its cores, its free memory, and the device that `auto` stands for."""

import os
from collections.abc import Callable
from contextlib import suppress


def share_cores() -> None:
    """Put this thread, and all that it starts, into Linux's scheduling class `SCHED_BATCH`.

    A record wakes a process at every hop. When all cores are busy, each wake-up would interrupt a
    process that computes, for one record. In `SCHED_BATCH` a process waits its turn and then finds
    several records. On two cores gateway, broker, manager and worker then take 2,000 instead of
    1,300 calls a second. They use two thirds of the CPU. While a core is free nothing changes. A
    class that the user chose stays. Does nothing where the kernel refuses or there is no such
    class.
    """
    if not hasattr(os, "sched_setscheduler"):
        return
    with suppress(OSError):
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def device_named(setting: str, has_gpu: Callable[[], bool]) -> str:
    """Return the device of a setting; `auto` is a GPU if there is one, else the CPU.

    `has_gpu` is only called for `auto`, since the answer takes a moment.
    """
    if setting != "auto":
        return setting
    return "cuda" if has_gpu() else "cpu"


def free_host_bytes() -> int:
    """Return the host's memory that no program uses, in bytes: what a worker on a CPU has free."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
