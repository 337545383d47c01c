"""Runs a program so that nothing of it is left behind: `process_guard.py PARENT GRACE COMMAND`.

A program of its own between a worker and the server it starts; imports nothing of this project. The
command gets a session of its own. It is asked to end when this is asked to (SIGTERM) or when the
process PARENT is gone, however it went; GRACE seconds later, or when the command has ended by
itself, whatever is left of its session is killed. Ends with the command's own exit status, 128 + n
for signal n.
"""

import contextlib
import os
import signal
import subprocess
import sys
import types

LOOK_S = 0.2
"""Between two looks after the parent. (Linux could send a signal instead, but does so when the
thread is gone that made this process.)"""


class Asked(Exception):
    """SIGTERM came."""


def main(parent: int, grace_s: float, command: list[str]) -> int:
    """The exit status."""
    signal.signal(signal.SIGTERM, _asked)
    if os.getppid() != parent:
        return 1
    with subprocess.Popen(command, start_new_session=True) as child:
        try:
            why = _watch(child, parent)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print(f"process_guard: {why}", file=sys.stderr, flush=True)
            child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(grace_s)
        finally:
            with contextlib.suppress(ProcessLookupError):  # all of it has ended
                os.killpg(child.pid, signal.SIGKILL)
        status = child.wait()
        return status if status >= 0 else 128 - status


def _watch(child: subprocess.Popen[bytes], parent: int) -> str:
    """Returns when it is over, and why."""
    try:
        while os.getppid() == parent:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return f"the program ended with status {child.wait(LOOK_S)}"
    except Asked:
        return "asked to end"
    return f"process {parent} is gone"


def _asked(number: int, frame: types.FrameType | None) -> None:
    raise Asked


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
