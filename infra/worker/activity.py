"""Accounts of a worker's time: what its processes do with it, and a move's phases.

`ActivityAccount` has the figures for `WorkerUsage`, `PhaseTimes` those for `RoleAcquired` and
`RoleReleased`.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Literal

from seamlessflow.schemas.records import WorkerUsage

Activity = Literal["decoding", "training", "waiting", "loading", "idle", "none"]
"""A worker's activities:

- `training`: computing its own part of a step
- `waiting`: in a step, for the gang's others or for the trainer
- `none`: without a role, which does not count as idle
"""


class ActivityAccount:
    """Milliseconds by activity, and tokens, since the last report. Any thread may use it."""

    def __init__(self, worker: str, process: Literal["rollout", "train"], now_ms: int) -> None:
        self._worker = worker
        self._process = process
        self._lock = threading.Lock()
        self._activity: Activity = "none"
        self._begun_ms = self._changed_ms = now_ms
        self._spent_ms: Counter[Activity] = Counter()
        self._tokens = 0
        self._passes_s = 0.0, 0.0

    def enter(self, activity: Activity, now_ms: int) -> None:
        """Count the time from `now_ms` on as this activity."""
        with self._lock:
            self._advance(now_ms)
            self._activity = activity

    def add_tokens(self, tokens: int) -> None:
        """Count tokens that were sampled or trained."""
        with self._lock:
            self._tokens += tokens

    def add_passes(self, full_batch_s: float, recomputing_s: float) -> None:
        """Count seconds that passes would take in full batches, and those for KV computed again."""
        with self._lock:
            full_s, again_s = self._passes_s
            self._passes_s = full_s + full_batch_s, again_s + recomputing_s

    def report(self, incarnation: str, now_ms: int) -> WorkerUsage | None:
        """Return the figures since the last report, or None if there was no role in that time."""
        with self._lock:
            self._advance(now_ms)
            spent = self._spent_ms
            tokens = self._tokens
            begun_ms = self._begun_ms
            self._spent_ms = Counter()
            self._tokens = 0
            self._begun_ms = now_ms
            full_s, again_s = self._passes_s
            self._passes_s = 0.0, 0.0
        del spent["none"]
        if not spent.total():
            return None
        # Two threads time passes and activity, so parts are kept from exceeding the whole.
        again_ms = min(round(1000 * again_s), spent["decoding"])
        return WorkerUsage(
            at_ms=now_ms,
            worker=self._worker,
            incarnation=incarnation,
            process=self._process,
            from_ms=begun_ms,
            decoding_ms=spent["decoding"],
            training_ms=spent["training"] + spent["waiting"],
            loading_ms=spent["loading"],
            idle_ms=spent["idle"],
            tokens=tokens,
            full_batch_ms=min(round(1000 * full_s), spent["decoding"] - again_ms),
            recomputing_ms=again_ms,
            computing_ms=spent["training"] if self._process == "train" else None,
        )

    def _advance(self, now_ms: int) -> None:
        # The wall clock may be set back.
        self._spent_ms[self._activity] += max(0, now_ms - self._changed_ms)
        self._changed_ms = max(self._changed_ms, now_ms)


class PhaseTimes:
    """A stopwatch that runs from its creation: each phase ends where the next one begins.

    For one thread at a time; each phase may have another thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_s = self._ended_s = clock()
        self._ms: dict[str, float] = {}

    def end(self, phase: str) -> None:
        """Count the time since the last phase, or since the creation, as this phase."""
        now_s = self._clock()
        passed_ms = 1000 * (now_s - self._ended_s)
        self._ms[phase] = round(self._ms.get(phase, 0.0) + passed_ms, 3)
        self._ended_s = now_s

    @property
    def by_name(self) -> dict[str, float]:
        """Milliseconds that each ended phase took."""
        return dict(self._ms)

    @property
    def total_ms(self) -> int:
        """Milliseconds that all ended phases took."""
        return round(1000 * (self._ended_s - self._began_s))
