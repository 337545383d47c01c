"""Training from beginning to end, for the demo and for a user's configuration.

The first node, which has the gateway, makes the run (`train`). Each further node adds its workers
and ends with the run (`follow`). An earlier run in the directory is resumed, if it had the same
configuration. Every process finds its place on the log or in its checkpoint. With held-back tasks,
the first and the last weights are evaluated.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from seamlessflow.config import RunConfig
from seamlessflow.infra.clock import Stopping, now_ms
from seamlessflow.infra.kafka.topics.creation import TopicOptions, create_topics
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.cluster import has_address
from seamlessflow.processes.launcher import MORE_TIME, Launcher, NotReady
from seamlessflow.processes.locks import only_run, only_run_on
from seamlessflow.processes.specs import LaunchContext, ProcessSpecs
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.supervisor import Supervisor
from seamlessflow.processes.system import System, kafka_to_run_on
from seamlessflow.reports.evaluations.result import EvaluationResult
from seamlessflow.reports.outcome import RunOutcome, write_report
from seamlessflow.reports.summary import LauncherFacts
from seamlessflow.runs.chosen_weights import announce_frozen
from seamlessflow.runs.evaluation import EvaluationPlan, evaluate
from seamlessflow.scheduler.tasks.file import read as read_tasks
from seamlessflow.schemas.records import RunFinished, Sampling
from seamlessflow.schemas.topics import CONTROL, TOPICS
from seamlessflow.watching.display import Display
from seamlessflow.watching.observer import Observer, StallReports, frozen, progress_from_now

Prepare = Callable[[Launcher], float]
"""Makes the model while the other processes start; returns its warm-up's seconds."""


@dataclass(frozen=True)
class HeldBackTasks:
    """Tasks that are not trained on, for an evaluation before and after the training."""

    tasks: Path
    samples: int = 1
    split: str = "test"
    sampling: Sampling | None = None
    """Sampling parameters instead of the policy's."""


def train(
    config: RunConfig,
    display: Display,
    stop: Stop,
    prepare: Prepare | None = None,
    held_back: HeldBackTasks | None = None,
) -> RunOutcome:
    """Train to the last step and write the report in `config.out`.

    Raises `RunUnderWay`, `TopicsInUse`, `Interrupted`, `ChildEnded`, `NotReady` and the broker's
    errors, each after all processes have ended.
    """
    supervisor = Supervisor(config.restarts, display.notice)
    with (
        only_run(config.out),
        Launcher(config.logs_dir, stop, supervisor) as launcher,
        kafka_to_run_on(config, launcher, display) as kafka,
        _only_run_on(config, launcher.stopping),
    ):
        facts = LauncherFacts()
        if not is_finished(config, kafka, launcher.kafka_ended):
            facts = run_processes(config, display, launcher, kafka, prepare, held_back)
        display.phase("checking what was trained against the log")
        facts = replace(facts, restarts=supervisor.counts, peak_rss_mb=launcher.peaks_mb)
        return write_report(config, kafka, facts, launcher.kafka_ended)


def follow(
    config: RunConfig, kafka: KafkaSettings, node: str, display: Display, stop: Stop
) -> None:
    """Run a node's processes until the run ends; end them.

    Raises `NotReady` if the first node's run cannot be seen in `config.out`, and what
    `Launcher.check` raises. Each is raised after all processes have ended.
    """
    workers = sum("rollout" in worker.tags for worker in config.workers)
    supervisor = Supervisor(config.restarts, display.notice)
    with (
        only_run(config.out, f"node-{node}"),
        Launcher(config.logs_dir, stop, supervisor) as launcher,
    ):
        create_topics(kafka, TOPICS.values(), TopicOptions(workers=workers), launcher.stopping)
        if is_finished(config, kafka, launcher.stopping):
            return
        display.phase(f"waiting for the run of node {config.head}")
        _wait_for_head(config, launcher)
        display.phase(f"running the workers of node {node}")
        context = LaunchContext(kafka, 1, dict(os.environ), node=node, head=config.head)
        _run_workers(config, ProcessSpecs(config, context), kafka, launcher, display)


def run_processes(
    config: RunConfig,
    display: Display,
    launcher: Launcher,
    kafka: KafkaSettings,
    prepare: Prepare | None = None,
    held_back: HeldBackTasks | None = None,
) -> LauncherFacts:
    """Start all processes, train, evaluate, stop all processes."""
    system = System(config, kafka, launcher, display)
    before = after = warmup_s = None
    agents = "" if config.opened_outside else ", agents"
    display.phase(f"starting gateway, manager, workers{agents}")
    with system.running():
        if prepare is not None:
            display.phase("making the model, with a short supervised warm-up")
            warmup_s = prepare(launcher)
        announce_frozen(config, kafka)
        display.phase("starting the trainer, waiting for all to be ready")
        system.start_trainers()
        # An evaluation needs all workers for itself: no training task until it is over.
        system.restart_scheduler(training=held_back is None)
        system.wait_until_ready()
        if held_back is not None:
            display.phase("evaluating the first weights on held-back tasks")
            before = _evaluate(config, system, held_back, launcher.stopping)
            display.notice(f"held-back tasks before the training: {before}")
            system.restart_scheduler(training=True)
        display.phase("training")
        if config.opened_outside:
            display.notice(f"sessions are opened from outside: POST {system.gateway_url}/sessions")
        launcher.measure_loads()
        system.wait_for_the_last_step()
        loads = launcher.loads()
        if held_back is not None:
            display.phase("evaluating the last weights on held-back tasks")
            system.restart_scheduler(training=False)
            system.wait_for_newest_weights()
            after = _evaluate(config, system, held_back, launcher.stopping)
            display.notice(f"held-back tasks after the training: {after}")
        display.phase("stopping all processes in order")
    return LauncherFacts(
        eval_before=None if before is None else before.reward,
        eval_after=None if after is None else after.reward,
        warmup_s=warmup_s,
        loads=loads,
    )


def is_finished(config: RunConfig, kafka: KafkaSettings, stopping: Stopping) -> bool:
    """Return True if an earlier run made all steps, so that only the report is missing."""
    made = dict.fromkeys(config.trained, 0)
    for item in read_topic(kafka, CONTROL, Skipped(), stopping=stopping):
        if isinstance(item.record, RunFinished):
            name = item.record.policy or config.run.policy
            made[name] = max(made.get(name, 0), item.record.steps)
    return all(steps >= config.run.steps for steps in made.values())


def _only_run_on(config: RunConfig, stopping: Stopping) -> AbstractContextManager[None]:
    """Return the lock on the topics; an embedded Kafka is in the directory, which is locked."""
    if config.kafka is None:
        return nullcontext()
    return only_run_on(config.kafka, config.out, stopping)


def _evaluate(
    config: RunConfig, system: System, held_back: HeldBackTasks, stopping: Stopping
) -> EvaluationResult:
    version = system.progress.version
    plan = EvaluationPlan(
        label=f"{config.run.id}-held{version}",
        policy=config.run.policy,
        split=held_back.split,
        rows=read_tasks(held_back.tasks).rows,
        samples=held_back.samples,
        time_limit_s=config.pacing.task_timeout_s,
        weights=config.trainer.reward_weights,
        overrides=held_back.sampling,
    )
    show = system.progress.apply
    return evaluate(system.kafka, plan, system.wait_for, now_ms, show, stopping)


def _wait_for_head(config: RunConfig, launcher: Launcher) -> None:
    limit_s = config.start_timeout_s
    try:
        launcher.wait_for("start", lambda: has_address(config.out), limit_s)
    except NotReady as error:
        text = f"out: no run of node {config.head} in {config.out}, which all nodes must share"
        raise NotReady(text, limit_s, error.tails, MORE_TIME) from error


def _run_workers(
    config: RunConfig,
    specs: ProcessSpecs,
    kafka: KafkaSettings,
    launcher: Launcher,
    display: Display,
) -> None:
    with Observer(kafka, progress_from_now(config)) as observer, StallReports(kafka) as reports:
        launcher.report_to(lambda still: reports.send(frozen(still.name, still.limit_s, now_ms())))
        rollouts = specs.rollouts()
        trainers = specs.trainers()
        for spec in (*rollouts, *trainers):
            launcher.start(spec)

        def ended() -> bool:
            display.progress(observer.poll())
            return observer.progress.is_finished

        launcher.wait_for("the last step", ended, float("inf"))
        display.phase("stopping the workers in order")
        for specs_of_kind in (trainers, rollouts):
            launcher.end(spec.name for spec in specs_of_kind)
