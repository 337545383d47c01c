"""Sessions that wait long for a judge: a report on the log names judge and longest wait.

A judge that is away, or slower than the run, holds up sessions and so groups. It is reported once,
and again only after a time in which no session waited that long. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from seamlessflow.recorded.judging.requests import JudgementKey
from seamlessflow.schemas.records import ProgressStalled

_SHARE = 0.5
"""Share of a session's waiting time for judges after which the wait is reported."""


@dataclass(slots=True)
class JudgeWaits:
    """Judgements under way in a process, and the judges whose wait was reported."""

    wait_s: float
    """Seconds that a session waits for its judges."""
    _since_ms: dict[JudgementKey, int] = field(default_factory=dict)
    _reported: set[str] = field(default_factory=set)

    def begin(self, key: JudgementKey, now_ms: int) -> None:
        """Note that a judgement is waited for from now on."""
        self._since_ms[key] = now_ms

    def end(self, key: JudgementKey) -> None:
        """Note that it is no longer waited for."""
        self._since_ms.pop(key, None)

    def overdue(self, process: str, now_ms: int) -> Iterator[ProgressStalled]:
        """Yield a report for each judge that is waited for too long and was not reported yet."""
        limit_ms = int(1000 * _SHARE * self.wait_s)
        late: dict[str, list[JudgementKey]] = {}
        for key, since_ms in self._since_ms.items():
            if now_ms - since_ms >= limit_ms:
                late.setdefault(key.judge, []).append(key)
        self._reported &= late.keys()
        for judge, keys in late.items():
            if judge not in self._reported:
                self._reported.add(judge)
                yield self._report(judge, keys, process, now_ms, limit_ms)

    def _report(
        self, judge: str, keys: list[JudgementKey], process: str, now_ms: int, limit_ms: int
    ) -> ProgressStalled:
        longest = min(keys, key=self._since_ms.__getitem__)
        waited_s = (now_ms - self._since_ms[longest]) / 1000
        return ProgressStalled(
            at_ms=now_ms,
            what=f"judge {judge}",
            detail=f"{len(keys)} sessions wait for it in {process}, {longest.session_id} for "
            f"{waited_s:.0f} s; after {self.wait_s:g} s their groups are dropped",
            since_ms=self._since_ms[longest],
            process=process,
            deadline_ms=limit_ms,
        )
