"""Time in which a scheduler that takes over reads the task statistics from `arms`.

    python -m benchmarks arms [--arms 100000] [--epochs 1]

A scheduler writes statistics for so many tasks, as it does before a snapshot. With more epochs,
each epoch writes all of them again and removes the older ones. Then another scheduler catches up.

- `write_s`: time for the last epoch's records until all are acknowledged
- `wait_s`: the part after all are sent; the scheduler waits for 2 s of it
- `takeover_s`, `takeover_cpu_s`: the catch-up's time and CPU time
- `empty_s`: a catch-up's time without statistics

The embedded broker runs on the same machine.
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.process import collect_seldom
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.scheduler.journal import READER_OPTIONS, Journal
from seamlessflow.scheduler.state.arms import Arms
from seamlessflow.scheduler.state.state import State
from seamlessflow.schemas import records as r
from seamlessflow.schemas.topics import ARMS, CONTROL, FLEET, arm_key

_LIMIT_S = 120.0


class TakeOver(NamedTuple):
    """A catch-up: its time, its CPU time, and the count of arms that are known then."""

    taken_s: float
    cpu_s: float
    arms: int


def main(argv: Sequence[str]) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks arms", description=__doc__)
    parser.add_argument("--arms", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=1)
    asked = parser.parse_args(argv)
    with Broker(None, java=SHORT_LIVED) as broker:
        kafka = broker.settings
        create_topics(kafka, [CONTROL, FLEET, ARMS])
        with closing(Producer(kafka, "benchmark")) as producer:
            producer.send(CONTROL.name, r.SchedulerClaimed(epoch=1, scheduler="a", at_ms=0))
            producer.flush(_LIMIT_S)
            empty = _catch_up(kafka)
            arms = _arms(asked.arms)
            names = set(arms.changed)
            for epoch in range(1, asked.epochs + 1):
                arms.changed |= names
                write_s, wait_s = _write(producer, arms, epoch)
        full = _catch_up(kafka)
    figures = {
        "benchmark": "arms",
        "arms": full.arms,
        "epochs": asked.epochs,
        "write_s": round(write_s, 2),
        "wait_s": round(wait_s, 2),
        "takeover_s": round(full.taken_s, 2),
        "takeover_cpu_s": round(full.cpu_s, 2),
        "empty_s": round(empty.taken_s, 2),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(figures))


def _arms(count: int) -> Arms:
    """Return statistics for so many tasks, each with one result."""
    arms = Arms()
    arms.apply(State(), _admitted("task-0"), 0)
    (name, *_) = sorted(arms.by_name, reverse=True)
    arm = replace(
        arms.by_name[name], passed=3.52, failed=4.48, at_step=120, ready=1, last_counted=8
    )
    for number in range(count):
        arms.by_name[f"task:benchmark/{number:07}"] = arm
        arms.changed.add(f"task:benchmark/{number:07}")
    return arms


def _admitted(task_id: str) -> r.GroupAdmitted:
    return r.GroupAdmitted(
        epoch=1,
        at_ms=0,
        group_id="run-0",
        task_id=task_id,
        version=0,
        deadline_ms=0,
        sampler_figures={"draw": 17.0, "tasks": 100_000.0, "rate": 0.44},
    )


def _write(producer: Producer, arms: Arms, epoch: int) -> tuple[float, float]:
    """Write the statistics as the scheduler does; return its seconds, and the wait's seconds."""
    begun = time.perf_counter()
    for snapshot in arms.snapshots(epoch, 0):
        producer.send(ARMS.name, snapshot, key=arm_key(epoch, snapshot.arm))
    sent = time.perf_counter()
    producer.flush(_LIMIT_S)
    acknowledged = time.perf_counter()
    for older, name in arms.replaced(epoch):
        producer.send_bytes(ARMS.name, None, arm_key(older, name))
    arms.note_written(epoch)
    return acknowledged - begun, acknowledged - sent


def _catch_up(kafka: KafkaSettings) -> TakeOver:
    """Return a scheduler's catch-up."""
    with closing(
        Reader(kafka, "takeover", rules=ReadingRules(folds=True), **READER_OPTIONS)
    ) as reader:
        journal = Journal(kafka, reader, now_ms)
        collect_seldom()  # as the scheduler does
        begun, cpu = time.perf_counter(), time.process_time()
        journal.catch_up()
        taken_s, cpu_s = time.perf_counter() - begun, time.process_time() - cpu
        return TakeOver(taken_s, cpu_s, len(journal.view.arms.by_name))
