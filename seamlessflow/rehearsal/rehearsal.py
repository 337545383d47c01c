"""A run's rehearsal: its configuration, and all its processes from its beginning to its end.

The configuration is the run's, with modelled devices instead of real ones.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from seamlessflow.config import RunConfig, WorkerSection
from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.network.addresses import HOST
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.variables import place_in, variable
from seamlessflow.lab.calibration.recorded_run import hops
from seamlessflow.processes.launcher import Launcher
from seamlessflow.processes.locks import only_run, refuse_running
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.supervisor import Supervisor
from seamlessflow.processes.system import kafka_to_run_on
from seamlessflow.rehearsal.directory import begin_in, end_in
from seamlessflow.rehearsal.software import SoftwareTime, step_delays
from seamlessflow.rehearsal.verdict import (
    NearestLimit,
    distortions,
    modelled_step_s,
    nearest_limit,
    untrained,
)
from seamlessflow.reports.outcome import RunOutcome, write_report
from seamlessflow.reports.simulated_workers import with_own_model, without_room_of_own
from seamlessflow.runs.training import run_processes
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, REQUESTS, SESSIONS, Topic
from seamlessflow.watching.display import Display

_CLOCK = "clock"
"""Name of the engine, and of the trainer's backend, that follow the device model."""
_ENGINE = {"engine": _CLOCK}
_TRAINER = {"backend": _CLOCK, "device": "cpu", "host": HOST}


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
    """A notice about groups whose training is missing in the figures."""
    no_room: str = ""
    """A notice about a gang that could not hold what training keeps; empty if each could."""


def rehearsal_of(
    config: RunConfig, out: Path | None = None, steps: int | None = None, scale: float | None = None
) -> RunConfig:
    """Return the configuration to rehearse `config`; it leaves the run's directory alone.

    It keeps as many workers, devices and processes, and the same pacing, tasks and agent.
    """
    model = with_own_model(config).device_model
    run = config.run
    further = {
        name: section.model_copy(update={"trainer": section.trainer.model_copy(update=_TRAINER)})
        for name, section in config.policies.items()
        if section.frozen is None
    }
    updates = {
        "out": config.out / "rehearsal" if out is None else out,
        "workers": tuple(_modelled(worker) for worker in config.workers),
        "policies": config.policies | further,
        "rollout": config.rollout.model_copy(update=_ENGINE),
        "trainer": config.trainer.model_copy(update=_TRAINER),
        "run": run if steps is None else run.model_copy(update={"steps": steps}),
        "device_model": model if scale is None else model.model_copy(update={"scale": scale}),
        # Never on the cluster that the run will use: its log would be resumed there.
        "kafka": None,
    }
    return config.model_copy(update=updates)


def rehearse(config: RunConfig, display: Display, stop: Stop) -> Rehearsed:
    """Run to the last step; write a run's report and `rehearsal.json` to `config.out`.

    An earlier rehearsal there is replaced, never resumed: figures over both would describe neither.
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
        outcome = write_report(config, kafka, facts, launcher.kafka_ended)
        display.phase("measuring the way of turns and batches through the software")
        software = _software(kafka, outcome, launcher.stopping)
        control = read_topic(kafka, CONTROL, Skipped(), stopping=launcher.stopping)
        no_room = without_room_of_own(config, (item.record for item in control))
    limit = nearest_limit(facts.loads, os.cpu_count() or 1)
    distorted = tuple(distortions(facts.loads, software))
    missing = untrained(outcome.summary)
    scale = config.device_model.scale
    result = Rehearsed(outcome, software, scale, limit, distorted, missing, no_room)
    end_in(config.out, _report(result), scale)
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


def _report(result: Rehearsed) -> dict[str, object]:
    limit = result.limit
    software = result.software
    hop = software.hops
    return {
        "hop_ms": {"mean": round(hop.mean_ms, 2), "p95": hop.p95_ms},
        "step_delay_ms": round(software.delay_ms, 2),
        "software_share": round(software.share, 4),
        "nearest_limit": limit and {"process": limit.process, "factor": round(limit.factor, 2)},
        "distorted": result.distorted,
        "untrained": result.untrained,
        "no_room": result.no_room or None,
    }


def _modelled(worker: WorkerSection) -> WorkerSection:
    """Return the worker on this machine without a real device, whatever its own variables say."""
    variables = worker.environment
    wanted = {("rollout", name): value for name, value in _ENGINE.items()}
    wanted |= {("trainer", name): value for name, value in _TRAINER.items()}
    said = {variable(path): value for path, value in wanted.items() if place_in(variables, path)}
    return worker.model_copy(
        update={"node": "", "device": None, "environment": {**variables, **said}}
    )
