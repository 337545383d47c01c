"""Processes of a node without the gateway: rollout and training processes of its workers.

The first node, which has the gateway, makes the run (`training.py`); this one adds its workers
and ends with the run.
"""

import os

from seamlessflow.config import RunConfig
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.topics.creation import TopicOptions, create_topics
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.cluster import has_address
from seamlessflow.processes.launcher import MORE_TIME, Launcher, NotReady
from seamlessflow.processes.locks import only_run
from seamlessflow.processes.specs import LaunchContext, ProcessSpecs
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.supervisor import Supervisor
from seamlessflow.runs.training import is_finished
from seamlessflow.schemas.topics import TOPICS
from seamlessflow.watching.display import Display
from seamlessflow.watching.observer import Observer, StallReports, frozen
from seamlessflow.watching.progress import RunProgress


def follow(
    config: RunConfig, kafka: KafkaSettings, node: str, display: Display, stop: Stop
) -> None:
    """Run the processes of a node until the run ends; end them.

    Raises `NotReady` if the run of the first node is not to be seen in `config.out`, and what
    `Launcher.check` raises, each after all processes have ended.
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
        _run(config, ProcessSpecs(config, context), kafka, launcher, display)


def _wait_for_head(config: RunConfig, launcher: Launcher) -> None:
    limit_s = config.start_timeout_s
    try:
        launcher.wait_for("start", lambda: has_address(config.out), limit_s)
    except NotReady as error:
        text = f"out: no run of node {config.head} in {config.out}, which all nodes must share"
        raise NotReady(text, limit_s, error.tails, MORE_TIME) from error


def _run(
    config: RunConfig,
    specs: ProcessSpecs,
    kafka: KafkaSettings,
    launcher: Launcher,
    display: Display,
) -> None:
    steps = config.run.steps
    others = {name: RunProgress(name, steps) for name in config.policies}
    progress = RunProgress(config.run.policy, steps, since_ms=now_ms(), others=others)
    with Observer(kafka, progress) as observer, StallReports(kafka) as reports:
        launcher.report_to(lambda still: reports.send(frozen(still.name, still.limit_s, now_ms())))
        rollouts, trainers = specs.rollouts(), specs.trainers()
        for spec in (*rollouts, *trainers):
            launcher.start(spec)

        def ended() -> bool:
            finished = observer.poll().is_finished
            display.progress(progress)
            return finished

        launcher.wait_for("the last step", ended, float("inf"))
        display.phase("stopping the workers in order")
        for specs_of_kind in (trainers, rollouts):
            launcher.end(spec.name for spec in specs_of_kind)
