"""A console beside a run: a separate process, whose end changes nothing in the run."""

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from seamlessflow.infra.network.addresses import HOST, free_port, is_open
from seamlessflow.processes.cluster import address_written

PORT = 8750
_LOOK_S = 0.3
_END_S = 5.0


@contextmanager
def console_beside(out: Path, others: Sequence[Path] = ()) -> Iterator[str]:
    """Serve the console of the run that starts in `out`; yield the address that it will have.

    Runs in the directories `others` stand beside it.
    """
    port = free_port() if is_open(PORT, HOST) else PORT
    ended = threading.Event()
    before = address_written(out)  # a run that was killed left one
    options = [word for other in others for word in ("--beside", str(other))]
    args = (out, ["--port", str(port), "--audit", *options], before, ended)
    thread = threading.Thread(target=_serve, args=args, name="console", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{port}/"
    finally:
        ended.set()
        thread.join(2 * _END_S)


def _serve(out: Path, options: Sequence[str], before: int, ended: threading.Event) -> None:
    """Start the console once the run has an address, and end it with the run."""
    while address_written(out) in (0, before):
        if ended.wait(_LOOK_S):
            return
    program = (sys.executable, "-P", "-m", "seamlessflow", "console")
    command = [*program, "--out", str(out), *options]
    (out / "logs").mkdir(parents=True, exist_ok=True)
    with (out / "logs" / "console.log").open("ab") as log:
        # A separate session: Ctrl-C reaches only the run, which then ends the console.
        process = subprocess.Popen(  # nosec B603 # our own command, no shell
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        while process.poll() is None and not ended.wait(_LOOK_S):
            pass
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
