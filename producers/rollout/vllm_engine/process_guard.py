"""A program between a worker and its server that leaves no process of the server behind:
`process_guard.py PARENT GRACE COMMAND`.

The command runs in its own process group. The guard passes on a SIGTERM that it gets. It also sends
one when the process PARENT is gone for any reason. GRACE seconds later, or when the command has
ended by itself, the guard kills the rest of the group. It exits with the command's own status, 128
+ n for signal n. It imports nothing from this project.
"""

import contextlib
import os
import signal
import subprocess
import sys

LOOK_S = 0.2
"""Time between two checks for the parent and for SIGTERM. Linux could send a signal instead
(PR_SET_PDEATHSIG). But it does so when the thread that started this process ends, not its process.
"""


def main(parent: int, grace_s: float, command: list[str]) -> int:
    """Run the command; return the exit status."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    if os.getppid() != parent:  # it died before the guard had started
        return 1
    with subprocess.Popen(command, start_new_session=True) as child:  # nosec B603 # no shell
        try:
            why = _watch(child, parent, asked)
            print(f"process_guard: {why}", file=sys.stderr, flush=True)
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(grace_s)
        finally:
            with contextlib.suppress(ProcessLookupError):  # the whole group has ended
                os.killpg(child.pid, signal.SIGKILL)
        status = child.wait()
        return status if status >= 0 else 128 - status


def _watch(child: subprocess.Popen[bytes], parent: int, asked: list[int]) -> str:
    """Wait until the command is to end or has ended; return why."""
    # The handler only notes the signal. An exception from it inside `child.wait` could leave that
    # call's lock taken. The guard would then wait for the ended program for ever.
    while os.getppid() == parent:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return f"the program ended with status {child.wait(LOOK_S)}"
        if asked:
            return "asked to end"
    return f"process {parent} is gone"


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
