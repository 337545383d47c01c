"""The audit beside a console: a separate process, since it holds the tokens that it compares."""

import logging
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import orjson

from seamlessflow.console.models.surroundings import AuditState
from seamlessflow.infra.child import tied
from seamlessflow.infra.clock import now_ms

_END_S = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AuditCommand:
    """A command that prints a report as JSON on a line, once or for each of its rounds."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)


class AuditChild:
    """The process that runs such a command."""

    def __init__(self, command: AuditCommand, changed: Callable[[], None]) -> None:
        """Prepare; `changed` is called from its thread, for each report."""
        self._command = command
        self._changed = changed
        self._state: AuditState | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        """Start the command."""
        self._thread.start()

    def close(self) -> None:
        """End the command."""
        self._closing.set()
        if self._process is not None:
            self._process.terminate()
        self._thread.join(_END_S)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def state(self) -> AuditState | None:
        """Return the last round's result, or None before the first."""
        return self._state

    def _run(self) -> None:
        # The kernel ends the child when the thread that started it is gone: so this thread stays.
        with subprocess.Popen(  # nosec B603 # our own command, no shell
            tied(self._command.command),
            env=self._command.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            self._process = process
            if self._closing.is_set():
                process.terminate()
            assert process.stdout is not None  # nosec B101 # for the type checker
            for line in process.stdout:
                self._note(line)
        if self._state is not None:
            self._state = replace(self._state, over=True)
            self._changed()
        elif not self._closing.is_set():
            _log.warning("the audit ended without a report, with status %s", process.returncode)

    def _note(self, line: bytes) -> None:
        try:
            self._state = AuditState.of_report(orjson.loads(line), now_ms())
        except (orjson.JSONDecodeError, KeyError, TypeError):
            _log.warning("no report of the audit: %s", line[:300].decode(errors="replace"))
        else:
            self._changed()
