"""Mathematical answers, compared by math-verify (extra `scorers`) in a separate process.

An answer is a model's text, and SymPy may compute with it forever, or without a memory limit. So a
child process compares, with limits on its CPU time and memory. It starts with the first answer and
ends with its parent. A lost child is replaced.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from selectors import EVENT_READ, DefaultSelector
from typing import IO

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.producers.scorers.answers import after_reasoning, marked_answer, plain
from seamlessflow.producers.scorers.structures import ScorerUnusable

_MODULE = "seamlessflow.producers.scorers.math_process"
READY = b"ready\n"
"""The child's first line."""
_TRIES = 2
_PATIENCE_S = 600.0
"""Seconds to wait for a line. Long, since the machine may be busy; the child limits CPU time."""


class MathProcessLost(SeamlessFlowError):
    """The process that compares mathematical answers cannot be used."""

    lasting = False

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the process of the scorer math: {reason}")


class MathProcess:
    """Child process that compares; one comparison at a time, from any thread."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-P", "-m", _MODULE)) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def compare(self, answer: str, reference: str) -> float | None:
        """Return the score, or None for a reference that cannot be read.

        The score is 0 if the child spends too much on an answer, or if two children end at it.
        Raises `MathProcessLost`: a fault in the child or the machine is no score.
        """
        line = json.dumps({"answer": answer, "reference": reference}).encode() + b"\n"
        with self._lock:
            for _ in range(_TRIES):
                if reply := self._reply(self._running(), line):
                    score: float | None = json.loads(reply)
                    return score
                self._end()
        return 0.0

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._end()

    def _reply(self, child: subprocess.Popen[bytes], line: bytes) -> bytes:
        """Return the child's line, empty if it has ended. Raises `MathProcessLost`."""
        try:
            _pipe(child.stdin).write(line)
            _pipe(child.stdin).flush()
        except BrokenPipeError:
            return b""
        return self._next_line(child)

    def _running(self) -> subprocess.Popen[bytes]:
        """Return a child that waits for a line. Raises `MathProcessLost`."""
        if self._child is not None and self._child.poll() is not None:
            self._end()
        if self._child is None:
            self._child = subprocess.Popen(  # nosec B603 # a list, no shell
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            if self._next_line(self._child) != READY:
                self._end()
                raise MathProcessLost("it ended before its first line; standard error has why")
        return self._child

    def _next_line(self, child: subprocess.Popen[bytes]) -> bytes:
        stream = _pipe(child.stdout)
        with DefaultSelector() as selector:
            selector.register(stream, EVENT_READ)
            if not selector.select(_PATIENCE_S):
                self._end()
                raise MathProcessLost(f"it was silent for {_PATIENCE_S:g} s")
        return stream.readline()

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None


_process = MathProcess()


def mathematics(answer: str, reference: object) -> float:
    """Return 1 if the answer is mathematically equal to the reference, else 0.

    An unmarked answer is the last line. Raises `ValueError` for a reference without mathematics.
    """
    if find_spec("math_verify") is None:
        raise ScorerUnusable("math", "math-verify")
    marked = marked_answer(answer)
    if marked is None:
        lines = [line for line in after_reasoning(answer).splitlines() if line.strip()]
        marked = lines[-1] if lines else ""
    score = _process.compare(plain(marked), plain(str(reference)))
    if score is None:
        raise ValueError(f"the reference {str(reference)[:60]!r} is no mathematics")
    return score


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise ValueError("the child was started without pipes")
    return stream
