"""What the trainer process did with its time while it held a role: the figures of `WorkerUsage`.

Told at each change; may be asked from another thread.
"""

import threading
from collections import Counter
from typing import Literal

from schemas.records import WorkerUsage

Activity = Literal["training", "loading", "idle", "none"]
"""`none`: without a role, which is nobody's idle time."""


class Usage:
    """Milliseconds by activity since the last account."""

    def __init__(self, worker: str, now_ms: int) -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._activity: Activity = "none"
        self._begun_ms = self._changed_ms = now_ms
        self._spent_ms: Counter[str] = Counter()
        self._tokens = 0

    def now(self, activity: Activity, now_ms: int) -> None:
        """From `now_ms` on the process does this."""
        with self._lock:
            self._advance(now_ms)
            self._activity = activity

    def trained(self, tokens: int) -> None:
        """So many more tokens were trained."""
        with self._lock:
            self._tokens += tokens

    def account(self, incarnation: str, now_ms: int) -> WorkerUsage | None:
        """The stretch since the last account; None where there was no role in it."""
        with self._lock:
            self._advance(now_ms)
            spent, tokens, begun_ms = self._spent_ms, self._tokens, self._begun_ms
            self._spent_ms, self._tokens, self._begun_ms = Counter(), 0, now_ms
        if not (spent["training"] or spent["loading"] or spent["idle"]):
            return None
        return WorkerUsage(
            at_ms=now_ms,
            worker=self._worker,
            incarnation=incarnation,
            process="train",
            from_ms=begun_ms,
            training_ms=spent["training"],
            loading_ms=spent["loading"],
            idle_ms=spent["idle"],
            tokens=tokens,
        )

    def _advance(self, now_ms: int) -> None:
        self._spent_ms[self._activity] += max(0, now_ms - self._changed_ms)
        self._changed_ms = max(self._changed_ms, now_ms)
