"""The vLLM server as a child of this process: started, awaited, ended with all its children.

Its output goes to a file, whose last fault says why a server did not start. `process_guard.py` ends
the server also if this process dies without warning.
"""

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from seamlessflow.infra.child import ChildProcess
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.network.addresses import HOST, free_port
from seamlessflow.producers.rollout.settings import VllmSection
from seamlessflow.producers.rollout.vllm_engine import process_guard
from seamlessflow.producers.rollout.vllm_engine.launch import launch

_POLL_S = 0.1

STOP_S = 5.0
"""Time for the server to end in order; its GPU is free only then."""

_KILLED_S = 5.0

_LOG_LINES = 60
"""Log lines that are shown: if several processes log, the failed one's lines are not the last."""

_REFUSED = 2
"""Exit status of a server that refuses its command line; it would refuse it again."""

_OF_PROCESS = r"(?:\(\w+ pid=\d+\) )?(?:(?:ERROR|CRITICAL) \S+ \S+ \[\S+\] )?"

_FAULT = re.compile(
    rf"^{_OF_PROCESS}\s*("
    r"(?:[\w.]*(?:Error|Exception)|Value error|Assertion failed)\b[:,] .*"
    r"|\S+: [Ee]rror\b.*)$"
)

_ELSEWHERE = "root cause above"
"""Words by which vLLM's API server points to a fault in another of its processes."""

_log = logging.getLogger(__name__)


class VllmNotStarted(SeamlessFlowError):
    """A server that did not start; the end of its log (`tail`) gives the reason."""

    def __init__(
        self, reason: str, log_file: Path | None = None, tail: str = "", status: int | None = None
    ) -> None:
        """`status`: the server's exit status, None if it has not ended."""
        self.reason = reason
        self.log_file = log_file
        self.tail = tail
        if status == _REFUSED:
            self.lasting = True
        fault = last_fault(tail)
        message = f"vLLM did not start: {reason}{': ' if fault else ''}{fault}"
        # Again at the end: a supervisor shows the last line of a process that ended.
        log = f"\n--- end of {log_file} ---\n{tail}\n--- {message}" if log_file else ""
        super().__init__(f"{message}{log}")


class VllmServer(ChildProcess):
    """A server that the constructor starts (`VllmNotStarted`); then call `await_ready`."""

    def __init__(self, settings: VllmSection, capacity: int, model: Path, log_file: Path) -> None:
        if not settings.python.exists():
            reason = f"there is no {settings.python}; scripts/vllm-cpu makes one for a CPU"
            raise VllmNotStarted(reason)
        port = free_port()
        self.url = f"http://{HOST}:{port}"
        self._timeout_s = settings.start_timeout_s
        # The path of Python is not resolved: it would lead out of the virtual environment.
        wanted = launch(settings, capacity, model, port, os.environ)
        log_file.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(_guarded(wanted.command), log_file, wanted.environment)

    def await_ready(self) -> None:
        """Wait until the server answers. Raises `VllmNotStarted`."""
        try:
            await_answer(self.url, self._timeout_s, self._require_running)
        except TimeoutError as error:
            raise self._not_started(str(error)) from error

    def stop(self, timeout_s: float = STOP_S + _KILLED_S) -> None:
        """End the server and its children, by force if they do not end in time."""
        super().stop(timeout_s)

    def _require_running(self) -> None:
        if (status := self.exit_status) is not None:
            raise self._not_started(f"it ended with status {status}", status)

    def _not_started(self, reason: str, status: int | None = None) -> VllmNotStarted:
        return VllmNotStarted(reason, self.log_file, self.tail(_LOG_LINES), status)


def await_running(url: str, timeout_s: float) -> None:
    """Wait for a server that another process starts. Raises `VllmNotStarted`."""
    _log.info("waiting for the server at %s (rollout.vllm.url)", url)
    try:
        await_answer(url, timeout_s)
    except TimeoutError as error:
        raise VllmNotStarted(f"{url} (rollout.vllm.url): {error}") from error


def await_answer(url: str, timeout_s: float, look: Callable[[], None] = lambda: None) -> None:
    """Wait until a server answers; `look` is called meanwhile. Raises `TimeoutError`."""
    deadline = time.monotonic() + timeout_s
    with httpx.Client(base_url=url, timeout=5.0, trust_env=False) as client:
        while not _answers(client):
            look()
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer within {timeout_s:g} s")
            time.sleep(_POLL_S)


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _guarded(command: Sequence[str]) -> list[str]:
    guard = [sys.executable, "-I", process_guard.__file__]
    return [*guard, str(os.getpid()), str(STOP_S), *command]


def last_fault(log: str) -> str:
    """Return the last fault that a log names, empty if it names none.

    A traceback ends in it, but more lines follow: links, and the ends of the server's other
    processes.
    """
    faults = [match[1] for line in log.splitlines() if (match := _FAULT.match(line))]
    return next((fault for fault in reversed(faults) if _ELSEWHERE not in fault), "")
