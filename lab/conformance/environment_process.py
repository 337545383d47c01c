"""An environment in a separate process, which answers within a deadline or is ended.

It may hang, print, or end its process: none of this reaches the other implementation. The process
runs `serving.py`.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from types import TracebackType
from typing import IO, Any, Self

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.lab.conformance.comparing import ComparedState

START_LIMIT_S = 120.0
"""Seconds for importing its module and for its first call."""
_END_LIMIT_S = 5.0
_CHUNK_BYTES = 65_536
_TAIL_CHARACTERS = 300
_SHOWN_CHARACTERS = 100


class EnvironmentFailed(SeamlessFlowError):
    """An environment that cannot be compared, with the call in which it failed."""

    lasting = True

    def __init__(self, name: str, call: str, reason: str) -> None:
        self.name = name
        self.call = call
        self.reason = reason
        super().__init__(f"{name}, {call}: {reason}" if call else f"{name}: {reason}")


class EnvironmentProcess:
    """A handle for the process. As a context manager it ends the process."""

    def __init__(self, name: str, limit_s: float, start_limit_s: float = START_LIMIT_S) -> None:
        """`limit_s`: most seconds for an answer: a call to `reset` or `step`, then to `actions`."""
        self.name = name
        self._limit_s = limit_s
        self._start_limit_s = start_limit_s
        self._place = ""
        """Seed and step, for errors."""
        self._steps = 0
        self._unread = b""
        self._last_words = ""

    def __enter__(self) -> Self:
        self._printed: IO[bytes] = tempfile.TemporaryFile()
        asked, self._requests = os.pipe()
        self._answers, written = os.pipe()
        module = "seamlessflow.lab.conformance.serving"
        self._process = subprocess.Popen(  # nosec B603 # our own module, no shell
            [sys.executable, "-P", "-m", module, self.name, str(written)],
            stdin=asked,
            stdout=self._printed,
            stderr=self._printed,
            pass_fds=[written],
        )
        os.close(asked)
        os.close(written)
        try:
            self._answer("", self._start_limit_s)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def printed(self) -> str:
        """Return the last part of what it has printed, also after its end."""
        if self._printed.closed:
            return self._last_words
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - 4 * _TAIL_CHARACTERS))
        text = self._printed.read().decode(errors="replace").strip()
        return text[-_TAIL_CHARACTERS:]

    def reset(self, seed: int) -> ComparedState:
        """Begin an episode. Raises `EnvironmentFailed`."""
        self._place = f"seed {seed}, reset"
        self._steps = 0
        return self._state({"seed": seed})

    def step(self, action: Any) -> ComparedState:
        """Take an action. Raises `EnvironmentFailed`."""
        self._steps += 1
        seed = self._place.partition(",")[0]
        shown = json.dumps(action, ensure_ascii=False)[:_SHOWN_CHARACTERS]
        self._place = f"{seed}, step {self._steps}, action {shown}"
        return self._state({"action": action})

    def _state(self, request: dict[str, Any]) -> ComparedState:
        try:
            os.write(self._requests, json.dumps(request).encode() + b"\n")
        except BrokenPipeError as error:
            raise self._gone() from error
        return ComparedState(**self._answer(self._place, self._limit_s))

    def _answer(self, call: str, limit_s: float) -> dict[str, Any]:
        """Return the next answer. Raises `EnvironmentFailed`."""
        answer: dict[str, Any] = json.loads(self._line(limit_s))
        if "error" in answer:
            raise EnvironmentFailed(self.name, call, answer["error"])
        return answer

    def _line(self, limit_s: float) -> bytes:
        ends_s = time.monotonic() + limit_s
        while b"\n" not in self._unread:
            readable, _, _ = select.select(
                [self._answers], [], [], max(0, ends_s - time.monotonic())
            )
            if not readable:
                self._process.kill()
                reason = f"no answer within {limit_s:g} s, so its process was ended"
                raise EnvironmentFailed(self.name, self._place or "its import", reason)
            chunk = os.read(self._answers, _CHUNK_BYTES)
            if not chunk:
                raise self._gone()
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _gone(self) -> EnvironmentFailed:
        try:
            status = f"with status {self._process.wait(_END_LIMIT_S)}"
        except subprocess.TimeoutExpired:
            status = "its answers, and goes on"
        last = f": {self.printed}" if self.printed else ""
        return EnvironmentFailed(self.name, self._place, f"it ended its process {status}{last}")

    def _end(self) -> None:
        """End the process: without further requests it ends itself, unless it hangs."""
        os.close(self._requests)
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)
        self._last_words = self.printed
        self._printed.close()
