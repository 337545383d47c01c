"""This project's sides: `seamlessflow train` with Kafka, gateway, manager, agents and one worker.

`SIDES` has what a side sets beyond the work that all share. Its phases come from the log: device
time by category, and a step's metrics.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from benchmarks.peers.result import GENERATION, LOGPROBS, UPDATE, StepEnd
from benchmarks.peers.shape import WARM_UP, Sum, Work
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.processes.cluster import kafka_to_audit
from seamlessflow.reports.reward_curve import session_facts
from seamlessflow.scheduler.settings import RunSection
from seamlessflow.scheduler.state.accounts.device_time import (
    DECODING,
    LOADING,
    RECOMPUTING,
    SWITCHING,
    UNDER_FILLED,
    WAITING,
    DeviceTime,
    together,
)
from seamlessflow.scheduler.state.timeline import timeline
from seamlessflow.schemas.records import Record, StepCommitted, StepCompleted, Trajectory
from seamlessflow.schemas.topics import CONTROL, TRAJECTORIES

_ALL_GROUPS: dict[str, Any] = {"trainer": {"filters": {}}}
_TREE: dict[str, Any] = {"trainer": {"layout": "tree", "micro_batch_tokens": 4096}}
SIDES: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "default": (_ALL_GROUPS,),
    "in-turns": (_ALL_GROUPS, {"run": {"lag": 0}}),
    "tree": (_ALL_GROUPS, _TREE),
    "as-shipped": (),
    "vllm": (_ALL_GROUPS, {"rollout": {"engine": "vllm"}}),
}
"""Each side's settings. Groups with equal rewards are trained, as in TRL, but in `as-shipped`."""
CONFIG = "run.yaml"
RUN = "run"
"""A run's directory, within its work's directory."""


def write_run(work: Work, side: str) -> Path:
    """Write a run's tasks and configuration; return the configuration's path."""
    out, made = Path(work.out), settings(work, side)
    tasks = [
        {
            "id": str(number),
            "start": task.start,
            "changes": list(task.changes),
            "max_tokens": work.shape.max_tokens,
        }
        for number, task in enumerate(_ordered_tasks(work, lag(made)))
    ]
    lines = "".join(json.dumps(task) + "\n" for task in tasks)
    (out / "tasks.jsonl").write_text(lines, encoding="utf-8")
    config = out / CONFIG
    config.write_text(yaml.safe_dump(made), encoding="utf-8")
    return config


def _ordered_tasks(work: Work, steps: int) -> list[Sum]:
    """Return the tasks that all sides share, between those for the further steps on each end."""
    tasks = work.tasks(further_steps=2 * steps)
    common = len(work.tasks())
    before = common + steps * work.shape.groups
    return tasks[common:before] + tasks[:common] + tasks[before:]


def settings(work: Work, side: str) -> dict[str, Any]:
    """Return a run's configuration.

    It makes `lag` steps more before the measured ones, and as many behind them. So each measured
    step samples a whole batch.
    """
    shape = work.shape
    made: dict[str, Any] = {
        "out": str(Path(work.out) / RUN),
        "policy": {"model": work.model, "max_context": shape.max_context},
        "run": {
            "id": "peers",
            "groups_per_step": shape.groups,
            "group_size": shape.group_size,
        },
        "pacing": {"tasks": str(Path(work.out) / "tasks.jsonl"), "shuffle": False},
        "agents": {"callable": "benchmarks.peers.agent:run"},
        "rollout": {"torch": {"threads": work.threads}},
        "trainer": {
            "threads": work.threads,
            "seed": work.seed,
            "optimizer": {"lr": work.lr},
        },
    }
    for change in SIDES[side]:
        made = merged(made, change)
    return merged(made, {"run": {"steps": WARM_UP + work.steps + 2 * lag(made)}})


def lag(sections: Mapping[str, Any]) -> int:
    """Return how many steps such a run's tokens may be behind."""
    chosen: int = sections["run"].get("lag", RunSection().lag)
    return chosen


def merged(sections: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return sections with a change merged in, which counts where both set something."""
    made = dict(sections)
    for name, value in change.items():
        before = made.get(name)
        both = isinstance(before, Mapping) and isinstance(value, Mapping) and value
        made[name] = merged(before, value) if both else value  # type: ignore[arg-type]
    return made


def read_ends(work: Work, side: str) -> list[StepEnd]:
    """Return a run's step ends from its log: the warm-up's, and those of the measured steps.

    The first `lag` steps are left out: a run samples several batches before its first step, so they
    have less to do than later ones.
    """
    with kafka_to_audit(Path(work.out) / RUN) as kafka:
        control = [item.record for item in read_topic(kafka, CONTROL, Skipped())]
        made = (item.record for item in read_topic(kafka, TRAJECTORIES, Skipped()))
        sessions = session_facts(record for record in made if isinstance(record, Trajectory))
    sampled = {name: session.tokens_sampled for name, session in sessions.items()}
    first = lag(settings(work, side))
    return step_ends(control, sampled)[first : first + WARM_UP + work.steps]


def step_ends(control: Sequence[Record], sampled: Mapping[str, int]) -> list[StepEnd]:
    """Return the steps' ends, each with its batch's work and the time since the last end.

    `control`: its records in log order. `sampled`: sampled tokens by session. The first step's end
    has no phases: what came before it belongs to the start.
    """
    history = timeline(control)
    completed = {record.step: record for record in control if isinstance(record, StepCompleted)}
    batches = {record.step: record for record in control if isinstance(record, StepCommitted)}
    ends = sorted(completed.values(), key=lambda record: record.step)
    made = [_end(record, batches[record.step], sampled) for record in ends]
    for number, (before, record) in enumerate(pairwise(ends), start=1):
        spent = together(history.device_time((before.at_ms, record.at_ms)).values())
        made[number] = replace(
            made[number],
            phases=_phases(spent, record.metrics),
            details=_details(spent, record.metrics),
        )
    return made


def _end(record: StepCompleted, batch: StepCommitted, sampled: Mapping[str, int]) -> StepEnd:
    sessions = [session for group in batch.groups for session in group.sessions]
    return StepEnd(
        at_s=record.at_ms / 1000,
        sampled=sum(sampled[session] for session in sessions),
        trained=round(record.metrics["tokens_trained"]),
        phases={},
    )


def _phases(spent: DeviceTime, metrics: Mapping[str, float]) -> dict[str, float]:
    return {
        GENERATION: spent.subtotal(DECODING, UNDER_FILLED, RECOMPUTING) / 1000,
        LOGPROBS: metrics["annotate_s"],
        UPDATE: metrics["update_s"],
    }


def _details(spent: DeviceTime, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return parts of the rest and of the generation, which say where to look."""
    parts = (SWITCHING, LOADING, WAITING, UNDER_FILLED, RECOMPUTING)
    named = ("publish_s", "commit_s", "reward_mean", "mismatch_tokens")
    return {
        **{f"{name}_s": spent.subtotal(name) / 1000 for name in parts},
        **{name: metrics[name] for name in named if name in metrics},
    }
