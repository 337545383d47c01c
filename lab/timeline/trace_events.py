"""A timeline in Chrome's trace event format, which Perfetto and other trace viewers open.

The format is "Trace Event Format" (Google, 2016): complete events (`X`), instant events (`i`),
counters (`C`) and names (`M`). Times are in microseconds since the timeline's start. A pure
function of the records.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seamlessflow.infra.printable import printable
from seamlessflow.lab.timeline.bars import LABELS, Bar, bars
from seamlessflow.lab.timeline.facts import Given, RunFacts, StepTimes
from seamlessflow.scheduler.state.timeline import Timeline
from seamlessflow.schemas.tokens import shown_step

MOST_BARS = 400_000
"""Most bars in a file; beyond that, short neighbours are joined."""
_RUN, _WORKERS = 1, 2
"""The viewer's two processes: the run's lanes, and a lane for each worker."""
_US = 1_000
TraceEvent = dict[str, Any]


def trace_events(timeline: Timeline, facts: RunFacts, title: str) -> dict[str, Any]:
    """Return the file's content, to be written as JSON."""
    events = [
        *_names(timeline, facts),
        *_steps(facts),
        *_versions(facts),
        *_groups(facts),
        *_marks(facts),
        *_workers(timeline, facts),
    ]
    for event in events:
        if "ts" in event:
            event["ts"] = (event["ts"] - timeline.start_ms) * _US
    other = {"title": printable(title), "start_ms": timeline.start_ms}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}


def _names(timeline: Timeline, facts: RunFacts) -> Iterator[TraceEvent]:
    yield _name("process_name", _RUN, 0, "run")
    yield _name("process_name", _WORKERS, 0, "workers")
    for lane, policy in enumerate(_policies(facts), 1):
        yield _name("thread_name", _RUN, lane, f"batches of {policy}" if policy else "batches")
    for lane, worker in enumerate(timeline.workers, 1):
        yield _name("thread_name", _WORKERS, lane, worker)
        yield _event("M", "thread_sort_index", _WORKERS, lane, args={"sort_index": lane})


def _policies(facts: RunFacts) -> Sequence[str]:
    return list(dict.fromkeys(step.policy for step in facts.steps.values()))


def _steps(facts: RunFacts) -> Iterator[TraceEvent]:
    """Yield two spans for each step: the batch that waits for its gang, and the training."""
    lanes = {policy: lane for lane, policy in enumerate(_policies(facts), 1)}
    for step in facts.steps.values():
        lane = lanes[step.policy]
        if step.ready_ms is not None and step.started_ms is not None:
            wait = _span("waits for its gang", _RUN, lane, step.ready_ms, step.started_ms)
            yield wait | {"args": _figures(step)}
        if step.started_ms is not None and step.ended_ms is not None:
            name = f"step {shown_step(step.step)}"
            yield _span(name, _RUN, lane, step.started_ms, step.ended_ms) | {"args": _figures(step)}


def _figures(step: StepTimes) -> Mapping[str, object]:
    return {
        "step": shown_step(step.step),
        "version": step.version,
        "groups": step.groups,
        "trainable tokens": step.tokens,
        "workers": step.workers,
    }


def _versions(facts: RunFacts) -> Iterator[TraceEvent]:
    for at_ms, number, policy in facts.versions:
        yield _event("i", f"{policy} v{number}", _RUN, 0, ts=at_ms, s="g")


def _groups(facts: RunFacts) -> Iterator[TraceEvent]:
    for at_ms, count in facts.under_way:
        yield _event("C", "groups under way", _RUN, 0, ts=at_ms, args={"groups": count})


def _marks(facts: RunFacts) -> Iterator[TraceEvent]:
    for mark in facts.marks:
        yield _event("i", printable(mark.text), _RUN, 0, ts=mark.at_ms, s="g")


def _workers(timeline: Timeline, facts: RunFacts) -> Iterator[TraceEvent]:
    window = timeline.start_ms, max(timeline.end_ms, timeline.start_ms + 1)
    by_worker = bars(timeline.intervals, window, MOST_BARS)
    for lane, worker in enumerate(timeline.workers, 1):
        for bar in by_worker.get(worker, ()):
            yield _bar(lane, bar)
        for assignment in facts.assignments.get(worker, ()):
            yield _assignment(lane, assignment)
        for at_ms, version in facts.loaded.get(worker, ()):
            yield _event("i", f"loaded v{version}", _WORKERS, lane, ts=at_ms, s="t")


def _bar(lane: int, bar: Bar) -> TraceEvent:
    """Return a bar named after its largest part. Its arguments list all parts."""
    largest = max(bar.shares, key=lambda part: bar.shares[part])
    shares = {LABELS[part]: f"{share:.1%}" for part, share in bar.shares.items() if share}
    return _span(LABELS[largest], _WORKERS, lane, bar.start_ms, bar.end_ms) | {"args": shares}


def _assignment(lane: int, assignment: Given) -> TraceEvent:
    arguments = {"reason": assignment.reason, **assignment.figures}
    name = f"assigned: {assignment.role}"
    return _event("i", name, _WORKERS, lane, ts=assignment.at_ms, s="t", args=arguments)


def _span(name: str, process: int, lane: int, start_ms: int, end_ms: int) -> TraceEvent:
    return _event("X", name, process, lane, ts=start_ms, dur=(end_ms - start_ms) * _US)


def _name(kind: str, process: int, lane: int, name: str) -> TraceEvent:
    return _event("M", kind, process, lane, args={"name": printable(name)})


def _event(kind: str, name: str, process: int, lane: int, **more: object) -> TraceEvent:
    return {"ph": kind, "name": name, "pid": process, "tid": lane, **more}
