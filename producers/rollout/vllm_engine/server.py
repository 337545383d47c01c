"""The vLLM server as a child of this process: started, waited for, ended with all its children.

Its output goes to a file. If this process dies, however it does, the server is ended all the same
(`process_guard.py`).
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from infra.errors import SeamlessFlowError
from infra.ports import HOST, free_port
from producers.rollout.settings import VllmSection
from producers.rollout.vllm_engine import process_guard
from producers.rollout.vllm_engine.launch import launch

_POLL_S = 0.1
STOP_S = 5.0
"""How long it may take to end in order; its GPU is free only then."""

_KILLED_S = 5.0
_TAIL_BYTES = 6_000
_TAIL_LINES = 25


class VllmNotStarted(SeamlessFlowError):
    """There is no server to sample with; what it logged last says why."""

    def __init__(self, reason: str, log_file: Path | None = None, tail: str = "") -> None:
        self.reason = reason
        self.log_file = log_file
        self.tail = tail
        shown = f"\n--- end of {log_file} ---\n{tail}" if log_file else ""
        super().__init__(f"vLLM did not start: {reason}{shown}")


class VllmServer:
    """Started by its constructor (`VllmNotStarted`); `await_ready` returns when it answers."""

    def __init__(self, settings: VllmSection, capacity: int, model: Path, log_file: Path) -> None:
        if not settings.python.exists():
            reason = f"there is no {settings.python}; scripts/vllm-cpu makes one for a CPU"
            raise VllmNotStarted(reason)
        port = free_port()
        self.url = f"http://{HOST}:{port}"
        self.log_file = log_file
        self._timeout_s = settings.start_timeout_s
        # Not resolved: a link in a virtual environment is what makes it one.
        wanted = launch(settings, capacity, model, port, os.environ)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = log_file.stat().st_size if log_file.exists() else 0
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                _guarded(wanted.command),
                env=dict(wanted.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in a terminal is not for the server
            )

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def await_ready(self) -> None:
        """Waits until it answers. Raises `VllmNotStarted`."""
        deadline = time.monotonic() + self._timeout_s
        with httpx.Client(base_url=self.url, timeout=5.0, trust_env=False) as client:
            while not _answers(client):
                if self.exit_status is not None:
                    raise self._not_started(f"it ended with status {self.exit_status}")
                if time.monotonic() > deadline:
                    raise self._not_started(f"no answer within {self._timeout_s:g} s")
                time.sleep(_POLL_S)

    def tail(self) -> str:
        """The end of what it logged since it was started."""
        with self.log_file.open("rb") as log:
            length = log.seek(0, 2)
            log.seek(max(self._log_start, length - _TAIL_BYTES))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:])

    def stop(self) -> None:
        """Ends it and its children; by force what does not end in time."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S + _KILLED_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _not_started(self, reason: str) -> VllmNotStarted:
        return VllmNotStarted(reason, self.log_file, self.tail())


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _guarded(command: Sequence[str]) -> list[str]:
    guard = [sys.executable, "-I", process_guard.__file__]
    return [*guard, str(os.getpid()), str(STOP_S), *command]
