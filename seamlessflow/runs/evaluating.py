"""An evaluation by itself: a policy version, an agent and a task set, on processes of its own.

Nothing of the run is touched; everything lies below `OUT/evaluations`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from infra.clock import now_ms
from infra.errors import SeamlessFlowError
from scheduler.decisions.task_source import TaskRow
from scheduler.decisions.task_source import read as read_tasks
from seamlessflow.config import RunConfig
from seamlessflow.processes.launcher import Launcher
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.system import System, kafka_for
from seamlessflow.runs.chosen_weights import Weights, announce_weights
from seamlessflow.runs.evaluation import Evaluation, Plan, measure
from seamlessflow.watching.display import Display

EVALUATIONS = "evaluations"
RESULT = "evaluation.json"


class NoTasks(SeamlessFlowError):
    """It is not said what to evaluate on."""

    def __init__(self) -> None:
        super().__init__("name tasks: --tasks FILE, or evaluation.tasks in the configuration")


@dataclass(frozen=True)
class Evaluated:
    """An evaluation that is over."""

    out: Path
    weights: Weights
    result: Evaluation


def evaluate(
    config: RunConfig,
    weights: Weights,
    tasks: Path | None,
    limit: int | None,
    display: Display,
    stop: Stop,
) -> Evaluated:
    """Measures and writes `evaluation.json`. Raises `NoTasks` and what `training.train` raises."""
    file = tasks or config.evaluation.tasks
    if file is None:
        raise NoTasks
    rows = read_tasks(file).rows
    here = apart(config)
    here.out.mkdir(parents=True)
    with Launcher(here.logs_dir, stop) as launcher:
        display.phase("starting Kafka")
        with kafka_for(here, launcher) as kafka:
            system = System(here, kafka, launcher, display)
            display.phase("starting gateway, manager, workers, agents")
            with system.running():
                announce_weights(here, kafka, weights)
                system.schedule(training=False)
                system.wait_until_ready()
                display.phase(f"evaluating {len(rows[:limit])} tasks")
                plan = _plan(here, rows[:limit])
                result = measure(kafka, plan, system.wait_for, now_ms)
                display.phase("stopping all processes in order")
    told = {"weights": str(weights.directory), "version": weights.version, **asdict(result)}
    (here.out / RESULT).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return Evaluated(here.out, weights, result)


def apart(config: RunConfig) -> RunConfig:
    """The configuration with a directory and topics of its own, and workers that only roll out."""
    folders = (config.out / EVALUATIONS / str(number) for number in count(1))
    out = next(folder for folder in folders if not folder.exists())
    rollouts = [worker for worker in config.workers if "rollout" in worker.tags]
    workers = tuple(worker.model_copy(update={"tags": ("rollout",)}) for worker in rollouts)
    kafka = config.kafka
    if kafka is not None:
        prefix = f"{kafka.topic_prefix}evaluation-{now_ms()}."
        kafka = kafka.model_copy(update={"topic_prefix": prefix})
    return config.model_copy(update={"out": out, "workers": workers, "kafka": kafka})


def _plan(config: RunConfig, rows: Sequence[TaskRow]) -> Plan:
    return Plan(
        label=f"{config.run.id}-eval-{now_ms()}",
        policy=config.run.policy,
        split=config.evaluation.split,
        rows=rows,
        samples=config.evaluation.samples,
        time_limit_s=config.pacing.task_timeout_s,
    )
