"""Memory for a manager's open sessions, in one process without a broker.

    python -m benchmarks memory [--sessions 100000] [--turns 3] [--long-turns 2000] [--broker]

`idle_...`: `--sessions` open sessions, each with a few turns of 640 tokens, a hundred at once, are
folded under the manager's memory bound (`--memory-mb`, its default). Then a thousand of them are
read back. `long_...`: one session whose turns have 500 tokens each. Memory is the whole process's
peak. `_in_memory_kb` is what a session takes if it is not spilled. With `--broker` a manager
process reads the idle sessions from a real broker instead: `broker_...`.
"""

import argparse
import json
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.manager import decide_us
from benchmarks.recorded.broker_rebuild import broker_rebuild
from benchmarks.recorded.sessions import Recorder, Shape, interleaved, renderer
from seamlessflow.consumers.trajectories.acting.spilling import SpillFile, Spilling
from seamlessflow.consumers.trajectories.sessions.partition import Partition
from seamlessflow.consumers.trajectories.sessions.session_state import session_of, state_of
from seamlessflow.consumers.trajectories.settings import ManagerSection
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.schemas.codec import decode, encode
from seamlessflow.schemas.records import PolicyWeights, Record

_AT_ONCE = 100
_BATCH = 500
_READ_BACK = 1_000
_USUAL = {"prompt": 340, "sampled": 300}
_LONG = {"prompt": 260, "sampled": 220}
_MB = 1_000_000
_PAGE_BYTES = resource.getpagesize()


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks memory", description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--long-turns", type=int, default=2_000)
    parser.add_argument("--memory-mb", type=float, default=ManagerSection().memory_mb)
    parser.add_argument("--broker", action="store_true")
    asked = parser.parse_args(argv)
    figures: dict[str, object] = {"rss_mb_before": _rss_mb()}
    with renderer() as (made, policy), TemporaryDirectory() as directory:
        shape = Shape(asked.turns, **_USUAL)
        events = Recorder(made, policy, now_ms()).record(shape, finalized=False).events
        if asked.broker:
            figures = {"broker_sessions": asked.sessions}
            figures |= broker_rebuild(policy, _copies(events, asked.sessions), 1)
        else:
            # First the long one: what it takes would be hidden in what the others leave free.
            figures |= long_session(made, policy, asked.long_turns) if asked.long_turns else {}
            figures |= idle_sessions(events, asked.sessions, asked.memory_mb, Path(directory))
    print(json.dumps({"benchmark": "memory", **figures}))


@dataclass
class Bounded:
    """A partition whose idle sessions are spilled as in a manager."""

    memory_mb: float
    directory: Path

    def __post_init__(self) -> None:
        self.file = SpillFile(self.directory)
        self.partition = Partition(0)
        self._spilling = Spilling(
            {0: self.partition}, self.file, int(self.memory_mb * _MB), Metrics()
        )

    def fold(self, events: Iterator[Record]) -> int:
        """Apply encoded and decoded events batch by batch; return their count."""
        offset = 0
        while batch := list(islice(events, _BATCH)):
            for event in batch:
                self.partition.apply(decode(encode(event)), offset, lambda _: "arguments")
                offset += 1
            self._spilling.look()
        return offset


def idle_sessions(
    events: Sequence[Record], count: int, memory_mb: float, directory: Path
) -> dict[str, object]:
    """Return what that many copies of an open session take, and how long reading back takes."""
    bounded = Bounded(memory_mb, directory)
    started_s = time.process_time()
    folded = bounded.fold(_copies(events, count))
    fold_s = time.process_time() - started_s
    sessions, file = bounded.partition.sessions, bounded.file
    kept = sessions.bytes_in_memory / len(sessions.in_memory)
    figures: dict[str, object] = {
        "idle_sessions": count,
        "idle_peak_mb": _peak_mb(),
        "idle_rss_mb": _rss_mb(),
        "idle_in_memory": len(sessions.in_memory),
        "idle_in_memory_kb": round(kept / 1000, 1),
        "idle_spilled": file.count,
        "idle_spilled_kb": round(file.held_bytes / max(1, file.count) / 1000, 1),
        "idle_fold_us_per_event": round(fold_s / folded * 1e6, 1),
    }
    times = []
    for session_id in list(sessions.spilled)[:: max(1, file.count // _READ_BACK)]:
        begun_s = time.perf_counter()
        sessions[session_id]
        times.append((time.perf_counter() - begun_s) * 1000)
    if times:
        figures |= {
            "read_back_ms": round(median(times), 2),
            "read_back_longest_ms": round(max(times)),
        }
    file.close()
    return figures


def long_session(made: Renderer, policy: PolicyWeights, turns: int) -> dict[str, object]:
    """Return what deciding costs behind a long history, and what the session takes."""
    recorder, shape = Recorder(made, policy, now_ms()), Shape(1, **_LONG)
    recorder.open()
    recorder.turn(shape)
    before_mb, first_us = _rss_mb(), decide_us(recorder, shape)
    while recorder.turns < turns:
        recorder.turn(shape)
        recorder.events.clear()
    last_us = decide_us(recorder, shape)
    session = recorder.session
    assert session is not None
    begun_s = time.process_time()
    state = state_of(session)
    written_s = time.process_time()
    assert session_of(state) == session
    return {
        "long_turns": turns,
        "long_tokens": recorder.history_tokens,
        "long_mb": round(_rss_mb() - before_mb),
        "long_decide_ms_turn2": round(first_us / 1000, 2),
        "long_decide_ms_last": round(last_us / 1000, 2),
        "long_spill_ms": round((written_s - begun_s) * 1000),
        "long_read_back_ms": round((time.process_time() - written_s) * 1000),
        "long_state_mb": round(len(state) / _MB, 1),
        "long_peak_mb": _peak_mb(),
    }


def _copies(events: Sequence[Record], count: int) -> Iterator[Record]:
    for first in range(0, count, _AT_ONCE):
        for event in interleaved([events], min(_AT_ONCE, count - first)):
            name = f"{first}-{event.session_id}"  # type: ignore[attr-defined]
            yield replace(event, session_id=name)  # type: ignore[type-var]


def _rss_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return round(pages * _PAGE_BYTES / _MB)


def _peak_mb() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _MB)
