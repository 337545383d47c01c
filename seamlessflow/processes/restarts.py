"""Decision about a process that ended by itself in a run: start it again, or end the run. Pure.

Called by `supervisor.py`.
"""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from seamlessflow.config import RestartsSection
from seamlessflow.infra.errors import ExitStatus

_CLIENT_ASSERTS = re.compile(
    r"\brdkafka\w*\.[ch]:\d+: ?(?P<function>\w+): (?:Assertion `|assert: )"
)
"""Last words of a process that Kafka's client ended because of a fault in the client."""
_SEGMENTATION = "Fatal Python error: Segmentation fault"
_CURRENT = re.compile(
    r'^Current thread .*\(most recent call first\):\n(?:  File "(?P<file>[^"]+)", line \d+ in .+)?',
    re.MULTILINE,
)
_CLIENT_FILES = ("/confluent_kafka/", "/infra/kafka/")
_CLIENT, _OTHER_NATIVE = "confluent_kafka.cimpl", "torch._C"
"""Extension modules that have threads without a Python stack."""
OWN_THREAD = "a thread of its own"


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

    `restarts_s`: times of its earlier restarts that count, on the same clock. `uncounted_s`: times
    of its other restarts if this one is not to count, else None. Uncounted restarts only make the
    pause longer. A segmentation fault's cause is less sure than an assertion's, so it counts after
    `limits.most` uncounted restarts.
    """
    if exit_status == ExitStatus.LASTING:
        return EndRun("another start cannot mend this")
    spared = sum(at_s > now_s - limits.within_s for at_s in uncounted_s or ())
    bounded = exit_status == -signal.SIGSEGV and spared >= limits.most
    if uncounted_s is not None and limits.most and not bounded:
        past = spared + sum(at_s > now_s - limits.within_s for at_s in restarts_s)
        return StartAgain(min(limits.pause_s * 2**past, limits.longest_pause_s), 0)
    recent = sum(at_s > now_s - limits.within_s for at_s in restarts_s)
    if recent >= limits.most:
        limit = f"restarts.most: {limits.most}, restarts.within_s: {limits.within_s:g}"
        return EndRun(f"it was started again {recent} times before ({limit})")
    return StartAgain(min(limits.pause_s * 2**recent, limits.longest_pause_s), recent + 1)


def ended_by_client(exit_status: int, log: str) -> str:
    """Return which function or thread in Kafka's client ended a process; empty if none did.

    The client's assertion about itself failed, or it read freed memory. Both happen when the broker
    goes and comes back. Neither the process nor its settings are at fault. `log`: the end of the
    process's log.
    """
    if exit_status == -signal.SIGSEGV:
        return _crashed_in_client(log)
    match = _CLIENT_ASSERTS.search(log) if exit_status == -signal.SIGABRT else None
    return match["function"] if match else ""


def _crashed_in_client(log: str) -> str:
    """Return where Kafka's client crashed, by the stacks at the newest segmentation fault.

    The log marks the crashed thread, unless that thread has no Python stack. An unmarked thread is
    the client's if nothing else that was loaded has such threads.
    """
    _, crashed, stacks = log.rpartition(_SEGMENTATION)
    current = _CURRENT.search(stacks)
    if current is not None:
        file = current["file"] or ""
        return file.rpartition("/")[2] if any(part in file for part in _CLIENT_FILES) else ""
    alone = _CLIENT in stacks and _OTHER_NATIVE not in stacks
    return OWN_THREAD if crashed and alone else ""


def description(exit_status: int) -> str:
    """Return how a process ended, as a sentence's end."""
    if exit_status < 0:
        return f"was ended by signal {-exit_status} ({signal.strsignal(-exit_status)})"
    return f"ended with exit status {exit_status}"
