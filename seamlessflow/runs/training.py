"""A whole training on one machine: start, measure, train, measure, stop, report.

The same for the demo and for a user's configuration. A directory with an earlier run of the same
configuration is gone on with: every process finds its own place on the log or in its checkpoint.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.clock import now_ms
from infra.kafka.whole_topic import read_topic
from infra.settings import KafkaSettings
from scheduler.decisions.task_source import read as read_tasks
from schemas.records import RunFinished
from schemas.topics import CONTROL
from seamlessflow.config import RunConfig
from seamlessflow.processes.launcher import Launcher
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.system import System, kafka_for
from seamlessflow.reports.outcome import Outcome, report
from seamlessflow.reports.summary import Measured
from seamlessflow.runs.evaluation import Plan, measure
from seamlessflow.watching.display import Display

Prepare = Callable[[Launcher], float]
"""Makes the model while the other processes start; returns the seconds of its warm-up."""


@dataclass(frozen=True)
class Held:
    """Tasks held back from training, measured before and after."""

    tasks: Path
    samples: int = 1
    split: str = "test"


def train(
    config: RunConfig,
    display: Display,
    stop: Stop,
    prepare: Prepare | None = None,
    held: Held | None = None,
) -> Outcome:
    """Runs everything to the last step and reports in `config.out`.

    Raises `Interrupted`, `ChildEnded`, `NotReady` and what the broker raises, after everything that
    was started has ended.
    """
    config.out.mkdir(parents=True, exist_ok=True)
    with Launcher(config.logs_dir, stop) as launcher:
        display.phase("starting Kafka")
        with kafka_for(config, launcher) as kafka:
            measured = Measured()
            if not _done_before(config, kafka):
                measured = _run(config, display, launcher, kafka, prepare, held)
            display.phase("checking what was trained against the log")
            return report(config, kafka, measured, launcher.peaks_mb)


def _run(
    config: RunConfig,
    display: Display,
    launcher: Launcher,
    kafka: KafkaSettings,
    prepare: Prepare | None,
    held: Held | None,
) -> Measured:
    """From the first process to the last."""
    system = System(config, kafka, launcher, display)
    before = after = warmup_s = None
    display.phase("starting gateway, manager, workers, agents")
    with system.running():
        if prepare is not None:
            display.phase("making the model, with a short supervised warm-up")
            warmup_s = prepare(launcher)
        display.phase("starting the trainer, waiting for all to be ready")
        system.start_trainers()
        system.schedule(training=held is None)
        system.wait_until_ready()
        if held is not None:
            display.phase("measuring the first weights on held-back tasks")
            before = _measure(config, system, held)
            system.schedule(training=True)
        display.phase("training")
        system.wait_for_the_last_step()
        if held is not None:
            display.phase("measuring the last weights on held-back tasks")
            system.schedule(training=False)
            system.wait_for_newest_weights()
            after = _measure(config, system, held)
        display.phase("stopping all processes in order")
    return Measured(eval_before=before, eval_after=after, warmup_s=warmup_s)


def _done_before(config: RunConfig, kafka: KafkaSettings) -> bool:
    """Whether an earlier start has made all steps, so that only the report is left."""
    steps = (
        item.record.steps
        for item in read_topic(kafka, CONTROL)
        if isinstance(item.record, RunFinished)
    )
    return max(steps, default=0) >= config.run.steps


def _measure(config: RunConfig, system: System, held: Held) -> float | None:
    version = system.progress.version
    plan = Plan(
        label=f"{config.run.id}-held{version}",
        policy=config.run.policy,
        split=held.split,
        rows=read_tasks(held.tasks).rows,
        samples=held.samples,
        time_limit_s=config.pacing.task_timeout_s,
    )
    return measure(system.kafka, plan, system.wait_for, now_ms).reward
