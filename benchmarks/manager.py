"""The trajectory manager's CPU time, on one core.

    python -m benchmarks manager [--sessions 64] [--turns 20] [--events 50000] [--without-broker]

`events_per_s`: the log's bytes decoded and folded by the partition's owner. `tokens_per_s`: new
tokens decoded, folded and assembled, with about 640 tokens an event. `rebuild_events_per_s`: the
same log after a crash; `broker_rebuild_by_N_events_per_s`: by N manager processes on a real broker,
from the start of reading until the last partition is owned, in wall time. `turn50_over_turn1`:
`decide` for a `RequestTurn` (matching, rendering) behind 32k tokens of history over one behind
none.

The best repeat counts for throughput, the median for a turn.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.recorded.broker_rebuild import broker_rebuild
from benchmarks.recorded.sessions import Recorder, Shape, interleaved, renderer
from seamlessflow.consumers.trajectories.sessions.assemble import trajectory
from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness
from seamlessflow.consumers.trajectories.sessions.partition import Partition, PartitionProgress
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.schemas.codec import decode, encode
from seamlessflow.schemas.records import PartitionClaimed, PolicyWeights, Record
from seamlessflow.schemas.tokens import TOKEN_BYTES

_TEMPLATES = 4
_REPEATS = 7
_TURN_REPEATS = 40
_LAST_TURN = 50
_USUAL = {"prompt": 340, "sampled": 300}
"""Fifty such turns make 32k tokens."""
_LONG = {"prompt": 1300, "sampled": 1900}
_MANAGER = "manager"


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks manager", description=__doc__)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--events", type=int, default=50_000, help="on the broker")
    parser.add_argument("--without-broker", action="store_true")
    asked = parser.parse_args(argv)
    copies = max(1, asked.sessions // _TEMPLATES)
    with renderer() as (made, policy):
        usual, long, unfinished = (
            recorded(made, policy, shape, finalized)
            for shape, finalized in (
                (Shape(asked.turns, **_USUAL), True),
                (Shape(asked.turns, **_LONG), True),
                (Shape(asked.turns, **_USUAL), False),
            )
        )
        figures = {**turns(made, policy), **throughput(usual, long, copies)}
        if not asked.without_broker:
            wanted = asked.events // sum(len(session) for session in unfinished)
            log = interleaved(unfinished, max(1, wanted))
            for managers in (1, 2):
                figures |= broker_rebuild(policy, log, managers)
    print(json.dumps({"benchmark": "manager", **figures}))


def recorded(
    made: Renderer, policy: PolicyWeights, shape: Shape, finalized: bool
) -> list[list[Record]]:
    """Return the events of a few different sessions."""
    return [
        Recorder(made, policy, now_ms(), seed).record(shape, finalized=finalized).events
        for seed in range(_TEMPLATES)
    ]


def throughput(
    usual: Sequence[Sequence[Record]], long: Sequence[Sequence[Record]], copies: int
) -> dict[str, float]:
    """Return events and tokens a second."""
    log, long_log = (
        Log.from_records(interleaved(usual, copies)),
        Log.from_records(interleaved(long, copies)),
    )
    live = best_s(lambda: log.fold(owned=True))
    rebuild = best_s(lambda: log.fold(owned=False))
    fold_long = best_s(lambda: long_log.fold(owned=True))
    sessions = long_log.fold(owned=True).sessions.values()
    assemble = best_s(lambda: [trajectory(session, 0) for session in sessions])
    return {
        "events": len(log.records),
        "events_per_s": round(len(log.records) / live),
        "rebuild_events_per_s": round(len(log.records) / rebuild),
        "tokens_per_event": round(long_log.tokens / len(long_log.records)),
        "tokens_per_s": round(long_log.tokens / (fold_long + assemble)),
        "assemble_tokens_per_s": round(long_log.tokens / assemble),
    }


@dataclass(frozen=True, slots=True)
class Log:
    """Records on a partition of `sessions`, their bytes, and the count of new tokens in them."""

    records: list[Record]
    encoded: list[bytes]
    tokens: int

    @classmethod
    def from_records(cls, records: list[Record]) -> "Log":
        """Encode the records; a token counts where it is first on the log."""
        new = (
            getattr(record, "suffix_ids", b"") + getattr(record, "token_ids", b"")
            for record in records
        )
        return cls(
            records,
            [encode(record) for record in records],
            sum(len(ids) // TOKEN_BYTES for ids in new),
        )

    def fold(self, owned: bool) -> Partition:
        """Return a partition that has folded the log, as its owner or while rebuilding."""
        partition = Partition(0, PartitionProgress(), _MANAGER)
        if owned:
            claim = PartitionClaimed(partition=0, epoch=1, manager=_MANAGER, at_ms=0)
            partition.apply(claim, 0, _arguments)
            partition.note_appended([record for record in self.records if hasattr(record, "epoch")])
        for offset, data in enumerate(self.encoded, 1):
            partition.apply(decode(data), offset, _arguments)
        return partition


def turns(made: Renderer, policy: PolicyWeights) -> dict[str, float]:
    """Return the microseconds of `decide` for a session's first and fiftieth turn."""
    recorder, shape = Recorder(made, policy, now_ms()), Shape(1, **_USUAL)
    recorder.open()
    first = decide_us(recorder, shape)
    while (at := recorder.turns + 1) < _LAST_TURN:
        recorder.turn(shape)
    last = decide_us(recorder, shape)
    return {
        f"match_us_turn{at}": round(last),
        "match_us_turn1": round(first),
        "history_tokens": recorder.history_tokens,
        f"turn{at}_over_turn1": round(last / first, 2),
    }


def decide_us(recorder: Recorder, shape: Shape) -> float:
    """Return the median over different requests behind the same history."""
    times = []
    for _ in range(_TURN_REPEATS):
        request = recorder.request(shape)
        start = time.process_time()
        recorder.decide(request)
        times.append(time.process_time() - start)
    return median(times) * 1e6


def best_s(work: Callable[[], object]) -> float:
    """Return the least CPU seconds over a few repeats."""
    times = []
    for _ in range(_REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def _arguments(policy: str) -> Strictness:
    return "arguments"
