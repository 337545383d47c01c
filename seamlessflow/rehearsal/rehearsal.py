"""Rehearsal of a run: all its processes, with modelled devices, from its beginning to its end."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from seamlessflow.config import RunConfig
from seamlessflow.infra.deadline import Stopping
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.launcher import Launcher
from seamlessflow.processes.locks import only_run, refuse_running
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.supervisor import Supervisor
from seamlessflow.processes.system import kafka_to_run_on
from seamlessflow.rehearsal.delays import step_delays
from seamlessflow.rehearsal.directory import REPORT, SCALE, begin_in
from seamlessflow.rehearsal.hops import hops
from seamlessflow.rehearsal.verdict import (
    NearestLimit,
    SoftwareTime,
    distortions,
    modelled_step_s,
    nearest_limit,
    untrained,
)
from seamlessflow.reports.outcome import RunOutcome, write_report
from seamlessflow.reports.simulated_workers import without_room_of_own
from seamlessflow.runs.training import run_processes
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, REQUESTS, SESSIONS, Topic
from seamlessflow.watching.display import Display


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """A rehearsal that has ended."""

    outcome: RunOutcome
    software: SoftwareTime
    scale: float
    limit: NearestLimit | None
    distorted: tuple[str, ...]
    """Ways in which this machine distorted the figures; empty if they can be trusted."""
    untrained: str | None = None
    """A notice of groups whose training is missing in the figures."""
    no_room: str = ""
    """A notice of a gang that could not hold what training keeps; empty if each could."""


def rehearse(config: RunConfig, display: Display, stop: Stop) -> Rehearsed:
    """Run to the last step, with the report of a run and `rehearsal.json` in `config.out`.

    An earlier rehearsal there is replaced, never resumed: figures over both would be of neither.
    Raises `DirectoryTaken`, and what `seamlessflow.runs.training.train` raises.
    """
    refuse_running(config.out)
    begin_in(config.out, config.device_model.scale)
    supervisor = Supervisor(config.restarts, display.notice)
    with (
        only_run(config.out),
        Launcher(config.logs_dir, stop, supervisor) as launcher,
        kafka_to_run_on(config, launcher, display) as kafka,
    ):
        facts = run_processes(config, display, launcher, kafka)
        facts = replace(facts, restarts=supervisor.counts, peak_rss_mb=launcher.peaks_mb)
        outcome = write_report(config, kafka, facts, launcher.stopping)
        display.phase("measuring the way of turns and batches through the software")
        software = _software(kafka, outcome, launcher.stopping)
        control = read_topic(kafka, CONTROL, Skipped(), stopping=launcher.stopping)
        no_room = without_room_of_own(config, (item.record for item in control))
    limit = nearest_limit(facts.loads, os.cpu_count() or 1)
    distorted = tuple(distortions(facts.loads, software))
    missing = untrained(outcome.summary)
    scale = config.device_model.scale
    result = Rehearsed(outcome, software, scale, limit, distorted, missing, no_room)
    (config.out / REPORT).write_text(json.dumps(_plain(result), indent=2) + "\n", encoding="utf-8")
    return result


def _software(kafka: KafkaSettings, outcome: RunOutcome, stopping: Stopping) -> SoftwareTime:
    def records(topic: Topic) -> Iterable[Record]:
        return (item.record for item in read_topic(kafka, topic, Skipped(), stopping=stopping))

    summary = outcome.summary
    return SoftwareTime(
        hops=hops(records(REQUESTS), records(SESSIONS)),
        turns=summary["turns"] / max(1, summary["trajectories"]),
        step_s=modelled_step_s(summary),
        delays_ms=step_delays(records(CONTROL)),
    )


def _plain(result: Rehearsed) -> dict[str, object]:
    limit, software = result.limit, result.software
    hop = software.hops
    return {
        SCALE: result.scale,
        "hop_ms": {"mean": round(hop.mean_ms, 2), "p95": hop.p95_ms},
        "step_delay_ms": round(software.delay_ms, 2),
        "software_share": round(software.share, 4),
        "nearest_limit": limit and {"process": limit.process, "factor": round(limit.factor, 2)},
        "distorted": result.distorted,
        "untrained": result.untrained,
        "no_room": result.no_room or None,
    }
