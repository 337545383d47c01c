"""Decoding and prompt times, fitted to the reports from a run's engines. Pure.

By the model, a pass over n rows lasts b + n r, and a prompt token takes p. The engines report a
token's time in a full batch with N rows, b / N + r (`full_batch_ms`). The token really took b / n +
r. So b follows from the mean row count n: the turns under way while an engine was busy. p follows
from keys and values that were computed again, or else is r.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from seamlessflow.lab.calibration.recorded_run import RecordedTurn
from seamlessflow.schemas.records import WorkerUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingTimes:
    """The fit, in seconds."""

    pass_s: float
    """b, a pass's fixed part."""
    row_s: float
    prompt_s: float
    rows: float
    """A pass's mean row count."""

    def rates(self) -> dict[str, float]:
        """Return the rates for passes whose time grows linearly with their rows."""
        fixed = self.pass_s if self.pass_s + self.row_s > 0 else 1e-6
        return {
            "launch_s": fixed,
            "row_s": self.row_s,
            "prompt_s": self.prompt_s,
            **dict.fromkeys(("weights_s", "context_s", "prompt_context_s"), 0.0),
        }


def decoding_times(
    usage: Sequence[WorkerUsage],
    turns: Sequence[RecordedTurn],
    rows: int,
    hop_s: float,
    again: float = 0.0,
) -> DecodingTimes | None:
    """Return the fit, or None if nothing was sampled.

    `rows`: in a full batch. `hop_s`: a turn's way from `TurnStarted` to its engine. `again`: tokens
    whose keys and values were computed again.
    """
    busy = [
        report
        for report in usage
        if report.process == "rollout" and report.tokens and report.decoding_ms
    ]
    tokens = sum(report.tokens for report in busy)
    if not tokens:
        return None
    added = _added(busy, turns)
    busy_s = sum(report.decoding_ms for report in busy) / 1000
    again_s = sum(report.recomputing_ms for report in busy) / 1000
    full_s = sum(report.full_batch_ms for report in busy) / 1000
    # Computing again is timed separately; prompts are timed together with decoding.
    known_s = again_s / again if again else 0.0
    prompts_s = known_s * added
    mean_rows = _rows(busy, turns, rows, hop_s)
    apart = tokens / mean_rows - tokens / rows
    pass_s = max(0.0, busy_s - again_s - full_s) / apart if apart > 0 else 0.0
    # Without a measured time, a prompt token takes as long as a sampled one.
    rest_s = max(0.0, full_s - prompts_s - tokens * pass_s / rows)
    row_s = rest_s / (tokens if known_s else tokens + added)
    prompt_s = known_s or row_s
    if not row_s:  # then the passes take all the time
        pass_s = max(0.0, busy_s - again_s - prompts_s) * mean_rows / tokens
    return DecodingTimes(pass_s=pass_s, row_s=row_s, prompt_s=prompt_s, rows=mean_rows)


def _rows(
    busy: Sequence[WorkerUsage], turns: Sequence[RecordedTurn], most: int, hop_s: float
) -> float:
    """Return how many turns an engine sampled at once, on average, while it was busy."""
    spans: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for turn in turns:
        begun_s = turn.started_ms / 1000 + hop_s
        ended_s = turn.ended_ms / 1000
        if begun_s < ended_s:
            spans[turn.worker] += [(begun_s, 1), (ended_s, -1)]
    times: defaultdict[str, float] = defaultdict(float)
    for report in busy:
        times[report.worker] += report.decoding_ms / 1000
    workers = [worker for worker in times if spans[worker]]
    if not workers:
        return 1.0
    rows_s = sum(_row_seconds(spans[worker], most) for worker in workers)
    return min(float(most), max(1.0, rows_s / sum(times[worker] for worker in workers)))


def _row_seconds(changes: list[tuple[float, int]], most: int) -> float:
    """Return all rows' time; turns beyond `most` wait for a row."""
    under_way = 0
    sum_s = 0.0
    before_s = 0.0
    for at_s, change in sorted(changes):
        sum_s += min(under_way, most) * (at_s - before_s)
        under_way = under_way + change
        before_s = at_s
    return sum_s


def _added(busy: Sequence[WorkerUsage], turns: Sequence[RecordedTurn]) -> int:
    """Return the new tokens in prompts that began within the reports' time spans."""
    begun: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for turn in turns:
        begun[turn.worker].append((turn.started_ms, turn.added))
    ordered = {worker: sorted(prompts) for worker, prompts in begun.items()}
    count = 0
    for report in busy:
        mine = ordered.get(report.worker, [])
        first, end = (bisect_left(mine, (at_ms, 0)) for at_ms in (report.from_ms, report.at_ms))
        count += sum(tokens for _, tokens in mine[first:end])
    return count
