"""What a rollout process did with its time. Pure; the numbers behind `WorkerUsage`."""

from dataclasses import dataclass, field
from typing import Literal

from schemas.records import WorkerUsage

Activity = Literal["decoding", "loading", "idle", "none"]
"""`none`: without a role, which is nobody's idle time."""

_REPORTED: tuple[Activity, ...] = ("decoding", "loading", "idle")


@dataclass(slots=True)
class Usage:
    """Told at every change what the process does from then on."""

    worker: str
    started_ms: int
    _since_ms: int = field(init=False)
    _activity: Activity = "none"
    _spent_ms: dict[Activity, int] = field(default_factory=dict)
    _tokens: int = 0

    def __post_init__(self) -> None:
        self._since_ms = self.started_ms

    def now(self, activity: Activity, now_ms: int) -> None:
        """From `now_ms` on the process does this."""
        spent = now_ms - self._since_ms
        if spent > 0:
            self._spent_ms[self._activity] = self._spent_ms.get(self._activity, 0) + spent
            self._since_ms = now_ms
        self._activity = activity

    def report(self, incarnation: str, tokens: int, now_ms: int) -> WorkerUsage | None:
        """The stretch since the last report, unless the process had no role in it.

        `tokens` counts from the process's start.
        """
        self.now(self._activity, now_ms)
        if not any(self._spent_ms.get(activity) for activity in _REPORTED):
            self._begin(tokens, now_ms)
            return None
        record = WorkerUsage(
            at_ms=now_ms,
            worker=self.worker,
            incarnation=incarnation,
            process="rollout",
            from_ms=self.started_ms,
            decoding_ms=self._spent_ms.get("decoding", 0),
            loading_ms=self._spent_ms.get("loading", 0),
            idle_ms=self._spent_ms.get("idle", 0),
            tokens=tokens - self._tokens,
        )
        self._begin(tokens, now_ms)
        return record

    def _begin(self, tokens: int, now_ms: int) -> None:
        self._spent_ms.clear()
        self.started_ms, self._tokens = now_ms, tokens
