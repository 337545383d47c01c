"""A small run with everything that pages show, and with content that means harm."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from seamlessflow.infra.kafka.client import Received, dead_letter_headers
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Record
from tests.builders.console import hostile
from tests.builders.console.memory_log import items_of, raw_item
from tests.builders.records import control, fleet, sessions, tasks
from tests.builders.records.content import ids

START_MS = 1_795_759_344_000
STEPS = 12


def run_items() -> list[Received]:
    """Return the records of a run of two workers that is at its thirteenth step."""
    control_items = _at_start(items_of("control", _timed(_control())))
    return [*control_items, *_sessions(), *_fleet(), *_letters()]


def late_worker(name: str) -> list[Received]:
    """Return a record by which another worker joins, behind all that `run_items` has."""
    return _at_start(items_of("control", [control.joined(name)], first=10_000))


def _at_start(items: Sequence[Received]) -> list[Received]:
    return [item._replace(timestamp_ms=START_MS + item.timestamp_ms) for item in items]


def _timed(records: Iterable[Any]) -> list[Record]:
    """Return records whose writers' clocks agree with the log's times."""
    return [
        replace(record, at_ms=START_MS + 1_000 * number) if hasattr(record, "at_ms") else record
        for number, record in enumerate(records)
    ]


def _control() -> list[Record]:
    records: list[Record] = [control.claimed(), control.joined("w0"), control.joined("w1")]
    records += [
        control.assigned("w0", "rollout", 1),
        control.acquired("w0", "rollout", 1, version=0),
    ]
    for step in range(STEPS):
        metrics = {
            "reward_mean": 0.1 + step / 20,
            "batch_s": 3.0,
            "update_s": 1.5,
            "publish_s": 0.2,
        }
        groups = [f"g-{2 * step}", f"g-{2 * step + 1}"]
        records += [control.admitted(group, f"task-{group}", group_size=4) for group in groups]
        records += [control.ready(group, reward_mean=0.5) for group in groups]
        records += [control.batch_ready(step, groups=tuple(groups), policy="policy")]
        records += [control.assigned("w1", "train", step + 2, policy="policy")]
        records += [control.acquired("w1", "train", step + 2, policy="policy")]
        records += [control.started(["w1"], step, policy="policy")]
        records += [control.committed(step, groups, policy="policy"), control.published(step + 1)]
        records += [control.consumed(group, step) for group in groups]
        records += [control.completed(step, policy="policy", metrics=metrics)]
    records += [control.admitted("g-24", "task-24", group_size=4), control.usage("w0")]
    records += [control.stalled("rollout", detail="1 groups are running, 0 ready")]
    records += [control.stalled(text, detail=text) for text in hostile.ALL]
    return records


def _sessions() -> list[Received]:
    events: list[Record] = [sessions.claimed(1, "manager-a")]
    for number in range(30):
        name = f"g-{number // 4}.{number % 4}.0"
        about = {
            "session_id": name,
            "group_id": f"g-{number // 4}",
            "task_id": f"task-{number // 4}",
        }
        events += [sessions.opened(**about), sessions.rewarded(number % 4 / 3, session_id=name)]
        events += [sessions.closed(session_id=name), sessions.finalized(session_id=name)]
    events += [sessions.opened(session_id="g-24.0.0", group_id="g-24", task_id="task-24")]
    events += [sessions.started("a", session_id="g-24.0.0")]
    events += [sessions.dispatched("a", session_id="g-24.0.0", worker="w0")]
    events += [sessions.opened(session_id=text, group_id="g-24") for text in hostile.ALL]
    names = [getattr(event, "session_id", None) for event in events]
    return [
        raw_item("sessions", 0, offset, START_MS + 900 * offset, encode(event), name)
        for offset, event, name in zip(count(), events, names, strict=False)
    ]


def _fleet() -> list[Received]:
    beats = [
        fleet.heartbeat("w0", "rollout", role="rollout", running=1, waiting=2, capacity=32),
        fleet.heartbeat("w1", "train", role="train"),
        fleet.gateway(in_flight=3),
        fleet.manager(),
    ]
    return _at_start(items_of("fleet", beats, step_ms=60_000))


def _letters() -> list[Received]:
    headers = dead_letter_headers("tasks", 3, 40, "no schema has the header", [])
    task = encode(tasks.task(payload=hostile.SCRIPT.encode() + b"x" * 300_000))
    return [
        raw_item("tasks.dlq", 3, 0, START_MS + 100_000, bytes(range(200)), "key", headers),
        raw_item("tasks", 3, 40, START_MS + 99_000, bytes(range(200)), "key"),
        raw_item("tasks", 3, 41, START_MS + 99_500, task, "g-24", [("traceparent", b"00-\xff")]),
        raw_item("requests", 1, 0, START_MS + 99_600, encode(sessions.ended(calls=ids(1, 2)))),
    ]
