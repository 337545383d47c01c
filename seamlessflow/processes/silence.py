"""Silence of a process that should give signs of life, and the way in which it is ended. Pure.

Called by `watchdog.py`.
"""

from dataclasses import dataclass, replace
from enum import Enum

ABORT_GRACE_S = 3.0
"""Time from SIGABRT, which a frozen process does not obey, to SIGKILL."""
_LONGEST_LOOK_S = 5.0
"""A longer time between two looks does not count: then the launcher itself stood still."""


class Act(Enum):
    """Act of the launcher on a process."""

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
        """Return what is due now and was not yet at the look before."""
        for due_s, act in ((limit_s + ABORT_GRACE_S, Act.KILL), (limit_s, Act.ABORT)):
            if before.silent_s < due_s <= self.silent_s:
                return act
        return Act.NOTHING
