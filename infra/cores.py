"""How processes that share a machine's cores take turns."""

import os
from contextlib import suppress


def share_cores(pid: int = 0) -> None:
    """From now on the process (0: this one) waits its turn when it wakes, on Linux.

    A record wakes somebody at every hop. Where all cores are busy, each wake-up would interrupt
    whoever computes, for a record alone: as `SCHED_BATCH` the next one finds several. On two cores
    that is 1,300 against 2,000 calls a second through gateway, broker, manager and worker, with
    two thirds of the CPU; where a core is free nothing changes. Threads made later inherit it. A
    policy that somebody chose stays, and so does a kernel's refusal.
    """
    if not hasattr(os, "sched_setscheduler"):
        return
    with suppress(OSError):
        if os.sched_getscheduler(pid) == os.SCHED_OTHER:
            os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))
