"""The `control` of a run with a dip, a restart with another setting, a loss and evaluations."""

import math
from collections.abc import Mapping, Sequence

import orjson

from seamlessflow.infra.kafka.client import Received
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.console.memory_log import items_of
from tests.builders.records import control

STEPS, DIP, RESUMED, LOST = 40, 24, 30, 12
"""Number of steps; the step (from 0) with a low reward; those behind which something happens."""
POLICY = "policy"
RETURNS = (1.0, 0.5, 0.0, 0.25)
AGAIN = 2
"""Steps that the restarted trainer executes again."""


def lineage(name: str, parent: str, step: int, **trainer: object) -> r.LineageStarted:
    """Return the start of a trainer."""
    return r.LineageStarted(
        at_ms=0,
        policy=POLICY,
        lineage=name,
        parent_lineage=parent,
        step=step,
        settings=orjson.dumps({"trainer": trainer}),
    )


def metrics_of(step: int) -> Mapping[str, float]:
    """Return the metrics of a step."""
    reward = 0.1 if step == DIP else 0.3 + 0.4 * (1 - math.exp(-step / 15))
    return {
        "reward_mean": reward,
        "reward_std": 0.2,
        "return/p10": 0.0,
        "grad_norm": 1.0 / (1 + step),
        "entropy": 0.5,
        "batch_s": 3.0,
        "update_s": 1.5,
        "publish_s": 0.2,
        "masked/stale": 7.0 * (step % 2),
        "mine/score": 0.5,
    }


def course_items() -> list[Received]:
    """Return the records, a second apart."""
    return items_of("control", list(_records()))


def items_beside(steps: int = 30) -> list[Received]:
    """Return the `control` of another run, with other settings, a lower reward and fewer steps."""
    records: list[Record] = [control.claimed(), lineage("c", "", 0, max_staleness=8, lr=0.1)]
    for step in range(steps):
        figures = dict(metrics_of(step))
        figures["reward_mean"] -= 0.05 + 0.03 * math.sin(7 * step)
        figures["entropy"] += 0.1 * math.sin(3 * step)
        figures["yours/score"] = 1.0
        done = control.completed(step, lineage="c", policy=POLICY, metrics=figures)
        records.append(done)
    return items_of("control", records)


def _records() -> Sequence[Record]:
    records: list[Record] = [control.claimed(), lineage("a", "", 0, max_staleness=2)]
    for step in range(RESUMED):
        records += _step(step, "a")
        if step == LOST:
            records.append(control.lost("w1", reason="no_heartbeat"))
    records.append(lineage("b", "a", RESUMED - AGAIN, max_staleness=4))
    for step in range(RESUMED - AGAIN, STEPS):
        records += _step(step, "b")
    return records


def _step(step: int, name: str) -> list[Record]:
    groups = [f"{name}-{step}-{number}" for number in range(2)]
    records: list[Record] = []
    for group in groups:
        records.append(control.admitted(group, f"task-{group}", version=step, policy=POLICY))
        records.append(
            control.ready(
                group,
                sessions=members_of(group),
                returns=RETURNS,
                turns=(1, 2, 3, 4),
                reward_mean=0.44,
                reward_std=0.37,
                version_min=max(0, step - 1),
                policy=POLICY,
            )
        )
    dropped = f"{name}-{step}-dropped"
    records.append(control.dropped(dropped, "stale", detail="older than 2 steps", policy=POLICY))
    trained, filtered = groups
    records.append(
        control.committed(
            step,
            [_group(trained), _group(filtered, "zero_variance")],
            lineage=name,
            policy=POLICY,
            trained_tokens=dict.fromkeys(members_of(trained), 10),
        )
    )
    records.append(
        control.completed(step, lineage=name, policy=POLICY, metrics=dict(metrics_of(step)))
    )
    if step % 10 == 9:
        records.append(control.evaluated(step + 1, "held", 0.4 + step / 100, reward_error=0.05))
    return records


def _group(group: str, filtered: str = "") -> r.StepGroup:
    return r.StepGroup(group_id=group, sessions=members_of(group), filtered=filtered)


def members_of(group: str) -> tuple[str, ...]:
    """Return the sessions of a group."""
    return tuple(f"{group}.{number}.0" for number in range(len(RETURNS)))
