"""Checks of a whole run that has ended: its log, its files, and what it printed."""

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from benchmarks.learning.methods import POLICY
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.worker.tags import CHEAP
from seamlessflow.recorded.audit.audit import audit
from seamlessflow.schemas.records import (
    GroupAdmitted,
    SeedSession,
    Trajectory,
    TurnDispatched,
    WeightsPublished,
    WorkerJoined,
)
from seamlessflow.schemas.topics import CONTROL, SESSIONS, TRAJECTORIES
from tests.algorithms.run_settings import WholeRun

_UNUSUAL = re.compile(r"^\S+ \S+ (?:WARNING|ERROR|CRITICAL) |^Traceback")
_USUAL = re.compile(
    r"librdkafka|infra\.kafka\.outage: waiting for Kafka"
    r"|WorkerLost\(.*process='train', reason='failed'"
)
"""Warnings of a broker that has just started, or is slow on a busy machine, and of a scheduler
whose trainer was killed."""
_OF_THE_KILL = re.compile(
    r"^\S+ \S+ CRITICAL \S+\.process: ended by an error\n(?:(?!CRITICAL)[^\0])*?"
    r"^\S+\.(?:TrainerGone|GangBroken): .*$",
    re.MULTILINE,
)
"""The end of a training process whose trainer was killed, and of one beside it in the gang."""


def log_faults(kafka: KafkaSettings, policy: str = POLICY) -> Iterator[str]:
    """Yield what is wrong with a policy's steps that were executed again, by their hashes."""
    hashes: dict[int, list[str]] = defaultdict(list)
    for received in read_topic(kafka, CONTROL, Skipped()):
        # Past versions that another name shows are not made again.
        if isinstance(received.record, WeightsPublished) and received.record.policy == policy:
            hashes[received.record.step].append(received.record.tensors_hash)
    again = {step: tensors for step, tensors in hashes.items() if step and len(tensors) > 1}
    if not again:
        yield "no step was executed again"
    for step, tensors in again.items():
        if len(set(tensors)) > 1 or not all(tensors):
            yield f"the weights behind step {step} have other tensors: {', '.join(tensors)}"


def exploration_faults(kafka: KafkaSettings) -> Iterator[str]:
    """Yield wrong seeds of sessions that sample again, and cheap tokens in the loss."""
    cheap: set[str] = set()
    seeds: dict[str, Sequence[SeedSession]] = {}
    for received in read_topic(kafka, CONTROL, Skipped()):
        match received.record:
            case WorkerJoined(worker=worker, tags=tags) if CHEAP in tags:
                cheap.add(worker)
            case GroupAdmitted() as admitted:
                seeds[admitted.group_id] = admitted.seeds
    sampled_cheaply = {
        (received.record.session_id, received.record.turn_id)
        for received in read_topic(kafka, SESSIONS, Skipped())
        if isinstance(received.record, TurnDispatched) and received.record.worker in cheap
    }
    for received in read_topic(kafka, TRAJECTORIES, Skipped()):
        made = received.record
        if not isinstance(made, Trajectory):
            continue
        wanted = dict(enumerate(seeds.get(made.group_id, ()))).get(made.sample)
        if made.seed_session != wanted:
            yield f"{made.session_id} took the seeds of {made.seed_session}, not of {wanted}"
        for node in made.nodes:
            trained = any(made.loss_mask[node.start : node.start + node.length])
            if trained and (made.session_id, node.turn_id) in sampled_cheaply:
                yield f"{made.session_id} trains turn {node.turn_id} of a cheap worker"


def file_faults(out: Path, steps: int, metrics: Set[str], run: WholeRun) -> Iterator[str]:
    """Yield what is wrong with metrics, summary and logs of a run in `out`."""
    missing = metrics - found_metrics(out)
    if missing:
        yield f"no step has {', '.join(sorted(missing))}"
    summary: Mapping[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    if summary["steps"] != steps:
        yield f"{summary['steps']} steps of {steps}"
    if summary["restarts"].get("trainer") != 1:
        yield f"restarts: {summary['restarts']}"
    checks = summary["checks"]
    if checks["mismatches"] or checks["trained_twice"] or not checks["tokens_checked"]:
        yield f"checks: {checks}"
    for symptom in summary["symptoms"]:
        if not any(text in symptom for text in run.symptoms):
            yield f"symptom: {symptom}"
    for file in sorted((out / "logs").glob("*.log")):
        text = _OF_THE_KILL.sub("", file.read_text(encoding="utf-8", errors="replace"))
        for line in text.splitlines():
            usual = file.stem in run.noisy or _USUAL.search(line)
            if _UNUSUAL.search(line) and not usual:
                yield f"{file.name}: {line}"


def audit_faults(kafka: KafkaSettings, out: Path) -> Iterator[str]:
    """Yield what an audit finds; it must have found something to check for each check."""
    report = audit(kafka, out / "trained")
    yield from (f"audit: {violation}" for violation in report.violations)
    if idle := [result.check for result in report.results if not result.checked]:
        yield f"audit: nothing to check of {', '.join(idle)}"


def found_metrics(out: Path) -> set[str]:
    """Return the metrics that some step of the run has."""
    with (out / "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    more = (metric.partition("=")[0] for row in rows for metric in (row["more"] or "").split())
    return {name for row in rows for name, value in row.items() if value} | set(more)


def replay_faults(printed: str, steps: int) -> Iterator[str]:
    """Yield what is wrong with what `replay train` printed about these steps."""
    if f"executed {steps} steps: {steps} equal" not in printed:
        yield f"replay train: {printed.splitlines()[-1]}"
