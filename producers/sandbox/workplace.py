"""Workplace for a session: a sandbox whose processes and folders stay from command to command.

A `Sandbox` ends all that a command started. But a terminal, or a server that tests look at later,
must go on after its command. So here all commands share processes, network and `/tmp`, until
`close`. This needs bubblewrap. A supervisor watches the limits for all commands together. It ends
them all if this process ends.
"""

import base64
import itertools
import json
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from seamlessflow.producers.sandbox.sandbox import (
    Sandbox,
    SandboxFailed,
    SandboxLimits,
    SandboxResult,
)

_FOREMAN = Path(__file__).with_name("foreman.py")
_PATIENCE_S = 120.0
"""Seconds after a command's time limit, or after `close`, until the foreman counts as lost."""
_Answers = SimpleQueue[Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """A command's end; processes that it started may go on."""

    status: int | None
    """Exit status; minus the signal's number if one ended it; None if its time ran out."""
    stdout: bytes
    stderr: bytes
    cut: bool
    """True if an output was longer than `most`."""


class Workplace:
    """Place for commands, each a text for bash. Several threads may run commands at once."""

    def __init__(
        self,
        folders: Sequence[str] = (),
        limits: SandboxLimits | None = None,
        prefixes: Sequence[str] = (),
        parent: Path | None = None,
    ) -> None:
        """`folders`: paths of directories that commands may write.

        `limits`: for all commands together. `time_s` is the workplace's whole life, and the output
        limit holds only for the foreman. `prefixes` and `parent` are as in `Sandbox`. Raises
        `SandboxFailed` without bubblewrap.
        """
        limits = limits or SandboxLimits(time_s=3_600.0)
        self._time_s = limits.time_s
        self._sandbox = Sandbox(limits, parent=parent, prefixes=prefixes, folders=folders)
        self._socket, theirs = socket.socketpair()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[int, _Answers] = {}
        self._ended: SandboxResult | SandboxFailed | None = None
        self._lost = False
        self._holding = threading.Thread(target=self._hold, args=(theirs.detach(),))
        self._reading = threading.Thread(target=self._read)
        self._holding.start()
        self._reading.start()

    def run(
        self,
        command: str,
        directory: str = "/",
        variables: Mapping[str, str] | None = None,
        time_s: float | None = None,
        stdin: bytes = b"",
        most: int = 1 << 20,
    ) -> CommandEnd:
        """Run a command and return its end. `most`: bytes per output. Raises `SandboxFailed`."""
        number = next(self._numbers)
        time_s = self._time_s if time_s is None else time_s
        asked = {
            "id": number,
            "command": command,
            "directory": directory,
            "variables": dict(variables or {}),
            "stdin": base64.b64encode(stdin).decode(),
            "time_s": time_s,
            "most": most,
        }
        answer = self._answer(number, json.dumps(asked).encode() + b"\n", time_s + _PATIENCE_S)
        stdout, stderr = (base64.b64decode(each) for each in answer["outputs"])
        cut = max(len(stdout), len(stderr)) > most
        return CommandEnd(answer["status"], stdout[:most], stderr[:most], cut)

    def close(self) -> None:
        """End all processes and remove all folders."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reading.join()
        self._holding.join(_PATIENCE_S)
        self._socket.close()
        self._sandbox.close()

    def _answer(self, number: int, line: bytes, patience_s: float) -> Mapping[str, Any]:
        answers: _Answers = SimpleQueue()
        with self._lock:
            self._waiting[number] = answers
            with suppress(OSError):  # all has ended, which `_read` also sees
                self._socket.sendall(line)
            if self._lost:
                answers.put(None)
        try:
            answer = answers.get(timeout=patience_s)
        except Empty:
            raise SandboxFailed("its foreman does not answer") from None
        finally:
            with self._lock:
                del self._waiting[number]
        if answer is None:
            raise SandboxFailed(self._why())
        return answer

    def _hold(self, channel: int) -> None:
        """Run the foreman until all has ended."""
        program = [sys.executable, "-I", "-S", "-c", _FOREMAN.read_text(encoding="utf-8")]
        try:
            self._ended = self._sandbox.run(program, channel=channel)
        except SandboxFailed as error:
            self._ended = error

    def _read(self) -> None:
        """Deliver answers until the foreman is gone."""
        with suppress(OSError), self._socket.makefile("rb") as lines:
            for line in lines:
                answer = json.loads(line)
                with self._lock:
                    answers = self._waiting.get(answer["id"])
                if answers is not None:
                    answers.put(answer)
        with self._lock:
            self._lost = True
            for answers in self._waiting.values():
                answers.put(None)

    def _why(self) -> str:
        """Return why the foreman is gone."""
        self._holding.join(_PATIENCE_S)
        if not isinstance(self._ended, SandboxResult):
            return f"its commands are lost: {self._ended}"
        said = self._ended.stderr.decode(errors="replace").strip()
        limit = "" if self._ended.ended == "exited" else f" beyond its limit of {self._ended.ended}"
        return f"its processes ended{limit}: {said}"
