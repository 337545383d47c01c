"""Watchdog over a run's processes: notices those that run without a sign of life.

Each child sends signs to its own socket (`infra/life_signs.py`). A thread asks the embedded broker.
`Silence` decides and is pure, the launcher acts.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from seamlessflow.infra.disk import ScratchDirectory
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.life_signs import DEADLINE, SOCKET, SignSocket
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.topics import CONTROL

ABORT_GRACE_S = 3.0
"""Time from SIGABRT, which a frozen process does not obey, to SIGKILL."""
_LONGEST_LOOK_S = 5.0
"""A longer time between two looks does not count: then the launcher itself stood still."""
_US = 1_000_000
_ASK_EVERY_S = 1.0
_ANSWER_S = 2.0


class Act(Enum):
    """An act that the launcher performs on a process."""

    NOTHING = "nothing"
    ABORT = "abort"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Silence:
    """Time without a sign of life, in seconds; begins with the first sign."""

    looked_s: float = 0.0
    silent_s: float = 0.0
    begun: bool = False

    def after_look(self, signed: bool, now_s: float) -> "Silence":
        """Return the silence after a look at `now_s` that found a sign, or none."""
        if signed:
            return Silence(now_s, 0.0, True)
        passed_s = now_s - self.looked_s
        counted_s = passed_s if self.begun and passed_s <= _LONGEST_LOOK_S else 0.0
        return replace(self, looked_s=now_s, silent_s=self.silent_s + counted_s)

    def act(self, before: "Silence", limit_s: float) -> Act:
        """Return the act that is due now and was not due at the look before."""
        for due_s, act in ((limit_s + ABORT_GRACE_S, Act.KILL), (limit_s, Act.ABORT)):
            if before.silent_s < due_s <= self.silent_s:
                return act
        return Act.NOTHING


@dataclass(frozen=True, slots=True)
class StandsStill:
    """A process that gave no sign of life for `limit_s`."""

    name: str
    act: Act
    limit_s: float

    def __str__(self) -> str:
        return f"gave no sign of life for {self.limit_s:g} s"


class BrokerSigns:
    """The broker's answers, asked for by a thread."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._answered = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="broker watch", daemon=True)
        self._thread.start()

    def signed(self) -> bool:
        """Return whether an answer came since the last call."""
        came = self._answered.is_set()
        self._answered.clear()
        return came

    def close(self) -> None:
        """End the thread, which may wait for an answer."""
        self._ending.set()
        self._thread.join(2 * _ANSWER_S)

    def _ask(self) -> None:
        lookup = BoundsLookup(self._kafka)
        while not self._ending.wait(_ASK_EVERY_S):
            if lookup.bounds([(CONTROL.name, 0)], _ANSWER_S):
                self._answered.set()
        lookup.close()


class Watchdog:
    """Silences by process name; with `limit_s` 0 no process is watched. Used from one thread."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._directory = ScratchDirectory() if limit_s else None
        self._opened = 0
        self._signs: dict[str, SignSocket | BrokerSigns] = {}
        self._silences: dict[str, Silence] = {}

    def watch(self, name: str) -> Mapping[str, str]:
        """Watch a process that starts; return what its environment needs for it."""
        self.forget(name)
        if self._directory is None:
            return {}
        self._opened += 1
        path = self._directory.path / str(self._opened)
        self._signs[name] = SignSocket(path)
        return {SOCKET: str(path), DEADLINE: str(round(self._limit_s * _US))}

    def watch_broker(self, name: str, kafka: KafkaSettings) -> None:
        """Watch the embedded broker; after each start, watching begins with its first answer."""
        self.forget(name)
        if self._directory is not None:
            self._signs[name] = BrokerSigns(kafka)

    def forget(self, name: str) -> None:
        """Watch a process no more."""
        self._silences.pop(name, None)
        if signs := self._signs.pop(name, None):
            signs.close()

    def look(self, runs: Callable[[str], bool]) -> list[StandsStill]:
        """Return the running processes that must be ended now."""
        now_s = time.monotonic()
        stalls = []
        for name, signs in self._signs.items():
            if not runs(name):
                self._silences.pop(name, None)
                continue
            before = self._silences.get(name, Silence())
            after = before.after_look(signs.signed(), now_s)
            self._silences[name] = after
            if (act := after.act(before, self._limit_s)) is not Act.NOTHING:
                stalls.append(StandsStill(name, act, self._limit_s))
        return stalls

    def close(self) -> None:
        """Watch nothing more."""
        for name in list(self._signs):
            self.forget(name)
        if self._directory is not None:
            self._directory.close()
