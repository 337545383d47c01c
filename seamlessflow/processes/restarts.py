"""Decisions about a process of a run that ended by itself: start it again, or end the run. Pure.

Called by `supervisor.py`.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from infra.errors import ExitStatus
from seamlessflow.config import RestartsSection


@dataclass(frozen=True, slots=True)
class StartAgain:
    """The process is started again after a pause."""

    pause_s: float
    number: int
    """Number of this restart among those that count, from 1."""


@dataclass(frozen=True, slots=True)
class EndRun:
    """The run ends."""

    reason: str


def after_end(
    exit_status: int, restarts_s: Sequence[float], now_s: float, limits: RestartsSection
) -> StartAgain | EndRun:
    """Return the decision about a process that ended at `now_s`.

    `restarts_s`: times of its earlier restarts, on the same clock.
    """
    if exit_status == ExitStatus.LASTING:
        return EndRun("another start cannot mend this")
    recent = sum(at_s > now_s - limits.within_s for at_s in restarts_s)
    if recent >= limits.most:
        limit = f"restarts.most: {limits.most}, restarts.within_s: {limits.within_s:g}"
        return EndRun(f"it was started again {recent} times before ({limit})")
    return StartAgain(min(limits.pause_s * 2**recent, limits.longest_pause_s), recent + 1)


def description(exit_status: int) -> str:
    """Return how a process ended, as the end of a sentence."""
    if exit_status < 0:
        return f"was ended by signal {-exit_status} ({signal.strsignal(-exit_status)})"
    return f"ended with exit status {exit_status}"
