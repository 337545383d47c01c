"""Merging a recorded log again, from a real broker that shares the machine.

    python -m benchmarks replay [--events 200000] [--turns 20]

`events_per_s`: by process count, in wall time from the first event read to the outcome, the
processes' start included; `cpu_us_per_event`: for one process. Each repeat verifies nothing and
keeps nothing: it does only what a replay always does.
"""

import argparse
import json
import time
from collections.abc import Sequence

from benchmarks.manager import recorded
from benchmarks.recorded.sessions import Shape, interleaved, renderer, write
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.recorded.merge.partitions import MergeJob
from seamlessflow.recorded.merge.shards import merge_on
from seamlessflow.recorded.select.reading import partition_bounds
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.schemas.records import Record

_USUAL = {"prompt": 340, "sampled": 300}


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks replay", description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=20)
    asked = parser.parse_args(argv)
    with renderer() as (made, policy):
        sessions = recorded(made, policy, Shape(asked.turns, **_USUAL), finalized=True)
    wanted = asked.events // sum(len(session) for session in sessions)
    print(json.dumps({"benchmark": "replay", **merged(interleaved(sessions, max(1, wanted)))}))


def merged(events: Sequence[Record]) -> dict[str, float]:
    """Return events a second by process count."""
    with Broker(None, java=SHORT_LIVED) as broker:
        kafka = broker.settings
        write(kafka, events)
        job = MergeJob(kafka, partition_bounds(kafka, SessionSelection()))
        figures: dict[str, float] = {"events": len(events)}
        for processes in (1, 2):
            began, used = time.monotonic(), time.process_time()
            outcome = merge_on(processes, job, lambda _: None)
            took, cpu = time.monotonic() - began, time.process_time() - used
            figures["sessions"] = outcome.sessions
            figures[f"events_per_s_{processes}"] = round(outcome.events / took)
            if processes == 1:
                figures["cpu_us_per_event"] = round(cpu / outcome.events * 1e6, 1)
        return figures
