"""Decisions about a process of a run that ended by itself: start it again, or end the run. Pure.

Called by `supervisor.py`.
"""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from infra.errors import ExitStatus
from seamlessflow.config import RestartsSection

_CLIENT_ASSERTS = re.compile(
    r"\brdkafka\w*\.[ch]:\d+: ?(?P<function>\w+): (?:Assertion `|assert: )"
)
"""Last words of a process that Kafka's client ended, since it met a fault of its own."""


@dataclass(frozen=True, slots=True)
class StartAgain:
    """The process is started again after a pause."""

    pause_s: float
    number: int
    """Number of this restart among those that count, from 1; 0 if it does not count."""


@dataclass(frozen=True, slots=True)
class EndRun:
    """The run ends."""

    reason: str


def after_end(
    exit_status: int,
    restarts_s: Sequence[float],
    now_s: float,
    limits: RestartsSection,
    uncounted_s: Sequence[float] | None = None,
) -> StartAgain | EndRun:
    """Return the decision about a process that ended at `now_s`.

    `restarts_s`: times of its earlier restarts that count, on the same clock; `uncounted_s`: those
    of the others, if this one is not to count. They only make its pause longer.
    """
    if exit_status == ExitStatus.LASTING:
        return EndRun("another start cannot mend this")
    if uncounted_s is not None and limits.most:
        past = sum(at_s > now_s - limits.within_s for at_s in (*restarts_s, *uncounted_s))
        return StartAgain(min(limits.pause_s * 2**past, limits.longest_pause_s), 0)
    recent = sum(at_s > now_s - limits.within_s for at_s in restarts_s)
    if recent >= limits.most:
        limit = f"restarts.most: {limits.most}, restarts.within_s: {limits.within_s:g}"
        return EndRun(f"it was started again {recent} times before ({limit})")
    return StartAgain(min(limits.pause_s * 2**recent, limits.longest_pause_s), recent + 1)


def ended_by_client(exit_status: int, log: str) -> str:
    """Return the function of Kafka's client that ended a process; empty if none did.

    It asserts something about itself that did not hold, as seen when the broker goes and comes
    back: neither the process nor its settings are at fault. `log`: the end of the process's log.
    """
    found = _CLIENT_ASSERTS.search(log) if exit_status == -signal.SIGABRT else None
    return found["function"] if found else ""


def description(exit_status: int) -> str:
    """Return how a process ended, as the end of a sentence."""
    if exit_status < 0:
        return f"was ended by signal {-exit_status} ({signal.strsignal(-exit_status)})"
    return f"ended with exit status {exit_status}"
