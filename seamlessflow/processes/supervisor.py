"""Supervisor of a run's parts: plans their restarts, reports them, and carries them out.

`restarts.py` decides; the launcher says what ended and how it is started. If the disk is full, a
restart waits for room: otherwise it would fail, and count.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.config import RestartsSection
from seamlessflow.infra.disk import free_bytes
from seamlessflow.processes.child import ChildEnded
from seamlessflow.processes.restarts import EndRun, after_end, description

_MIB = 1024 * 1024
Notice = Callable[[str], object]
"""Shows a line to the user."""


@dataclass(frozen=True, slots=True)
class EndedPart:
    """A process that ended by itself."""

    name: str
    exit_status: int
    log_file: Path
    log_tail: str
    before: str = ""
    """Its fault before the launcher ended it; empty if it ended by itself."""
    client_fault: str = ""
    """Function in Kafka's client by which it ended; empty if it had another cause."""

    def __str__(self) -> str:
        """Return how it ended, as a sentence's beginning."""
        done = f"{self.before} and " if self.before else ""
        fault = f", a fault of Kafka's client in {self.client_fault}" if self.client_fault else ""
        return f"{self.name} {done}{description(self.exit_status)}{fault}"


@dataclass(slots=True)
class _Restart:
    due_s: float
    start: Callable[[], object]
    directory: Path
    waits: bool = False
    """True once it is due and waits for room on the disk."""


class Supervisor:
    """Restarts by process name. Used from one thread."""

    def __init__(
        self,
        limits: RestartsSection,
        notice: Notice,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        """`free` returns the free bytes on a directory's disk."""
        self._limits = limits
        self._free = free
        self._notice = notice
        self._restarts_s: dict[str, list[float]] = defaultdict(list)
        self._uncounted_s: dict[str, list[float]] = defaultdict(list)
        self._due: dict[str, _Restart] = {}

    @property
    def frozen_s(self) -> float:
        """Seconds without a sign of life after which a process is ended by force."""
        return self._limits.frozen_s

    @property
    def counts(self) -> Mapping[str, int]:
        """Restart counts for each process that had any."""
        times = (self._restarts_s, self._uncounted_s)
        names = sorted(name for by_name in times for name in by_name)
        counted = {name: sum(len(by_name.get(name, ())) for by_name in times) for name in names}
        return {name: count for name, count in counted.items() if count}

    def plans(self, name: str) -> bool:
        """Return whether a restart of the process is due later."""
        return name in self._due

    def ended(self, part: EndedPart, start: Callable[[], object]) -> None:
        """Plan that `start` is called after a pause. Raises `ChildEnded` if the run must end."""
        now_s = time.monotonic()
        limits = self._limits
        uncounted_s = self._uncounted_s[part.name] if part.client_fault else None
        decision = after_end(part.exit_status, self._of(part.name), now_s, limits, uncounted_s)
        if isinstance(decision, EndRun):
            reason = f"{part.before}, {decision.reason}" if part.before else decision.reason
            raise ChildEnded(part.name, part.exit_status, part.log_file, part.log_tail, reason)
        counted = self._restarts_s if decision.number else self._uncounted_s
        counted[part.name].append(now_s)
        due_s = now_s + decision.pause_s
        self._due[part.name] = _Restart(due_s, start, part.log_file.parent)
        again = f"restart {decision.number} of at most {limits.most} in {limits.within_s:g} s"
        if not decision.number:
            again = "a restart that does not count"
        self._report(part, f"it starts again in {decision.pause_s:g} s ({again})")

    def start_due(self) -> None:
        """Start what is due again and has room on its disk."""
        now_s = time.monotonic()
        for name in [name for name, due in self._due.items() if due.due_s <= now_s]:
            if self._has_room(name, self._due[name]):
                self._due.pop(name).start()

    def forget(self, name: str) -> None:
        """Plan no restart of the process any more."""
        self._due.pop(name, None)

    def _of(self, name: str) -> Sequence[float]:
        """Return when a process was restarted, for the restarts that count."""
        return self._restarts_s.get(name, ())

    def _report(self, part: EndedPart, plan: str) -> None:
        line = f"{part}; {plan}"
        words = part.log_tail.splitlines()
        cause = f": {words[-1].strip()}" if words and part.exit_status > 0 else ""
        self._notice(f"{line}{cause}")
        with suppress(OSError), part.log_file.open("a", encoding="utf-8") as log:
            log.write(f"--- {line}\n")  # the disk may be full; the notice has said it

    def _has_room(self, name: str, restart: _Restart) -> bool:
        """Return whether the process may start; show the first time that it may not."""
        wanted = self._limits.free_mb * _MIB
        free = self._free(restart.directory)
        if free >= wanted:
            return True
        if not restart.waits:
            restart.waits = True
            self._notice(
                f"{name} waits for room: the disk of {restart.directory} is full, {free} bytes are "
                f"free of the {wanted:.0f} that a start needs (restarts.free_mb)"
            )
        return False
