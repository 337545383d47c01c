"""Run that only evaluates: a policy version, an agent and a task set, in separate processes.

It changes nothing in the run whose weights it takes; its data lie below `OUT/evaluations`. Called
by `seamlessflow eval`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from seamlessflow.checks.check import before_evaluation
from seamlessflow.config import RunConfig
from seamlessflow.config_file import Check
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.faults import Fault
from seamlessflow.infra.settings import SamplingSection
from seamlessflow.processes.launcher import Launcher
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.supervisor import Supervisor
from seamlessflow.processes.system import System, kafka_to_run_on
from seamlessflow.reports.evaluations.result import EvaluationResult, write_result
from seamlessflow.runs.chosen_weights import (
    ChosenWeights,
    NoSuchVersion,
    announce_weights,
    choose_weights,
)
from seamlessflow.runs.evaluation import EvaluationPlan, evaluate
from seamlessflow.scheduler.tasks.file import read as read_tasks
from seamlessflow.scheduler.tasks.source import TaskRow
from seamlessflow.schemas.records import Sampling
from seamlessflow.trainer.data.figures.chances import PassTerms
from seamlessflow.watching.display import Display

_SAMPLING = tuple(SamplingSection.model_fields)
EVALUATIONS = "evaluations"


class NoTasks(SeamlessFlowError):
    """Neither the command line nor the configuration names tasks to evaluate on."""

    def __init__(self) -> None:
        super().__init__("name tasks: --tasks FILE, or in the section evaluation")


@dataclass(frozen=True)
class EvaluationChoice:
    """Tasks that a user chose, and how they are sampled, over the configuration's settings."""

    tasks: str | None = None
    """File with tasks, or a text for an environment's tasks; None: the configuration's tasks."""
    chosen: str | None = None
    """One of several sets; None: all."""
    limit: int | None = None
    """First tasks in each set; None: all."""
    temperature: float | None = None
    samples: int | None = None
    """Sessions per task."""

    @property
    def file(self) -> Path | None:
        """Return the task file, or None if the configuration names tasks."""
        return None if self.tasks is None else Path(self.tasks)


@dataclass(frozen=True)
class EvaluationRun:
    """An evaluation run that has ended."""

    out: Path
    weights: ChosenWeights
    results: Mapping[str, EvaluationResult]
    """Results by set; a single set is named by its split."""
    sampling: Mapping[str, Mapping[str, float]]
    """Parameters that replaced the policy's, by set."""


def evaluation_check(
    version: int | None, weights: Path | None, tasks: Path | None, chosen: str | None = None
) -> Check:
    """Return the check before an evaluation with the weights and tasks that a user chose."""

    def check(config: RunConfig) -> Iterator[Fault]:
        directory = config.policy.model
        try:
            directory = choose_weights(config, version, weights).model
        except NoSuchVersion as error:
            yield Fault(("out",), str(error))
        yield from before_evaluation(config, directory, tasks, chosen)

    return check


def run_evaluation(
    config: RunConfig,
    weights: ChosenWeights,
    choice: EvaluationChoice,
    display: Display,
    stop: Stop,
) -> EvaluationRun:
    """Evaluate, one set after the other, and write the result's files."""
    section = config.evaluation
    files = section.files if choice.file is None else {section.split: choice.file}
    plans = [
        _plan(config, split, place, read_tasks(file).rows[: choice.limit], choice)
        for place, (split, file) in enumerate(files.items())
        if choice.chosen in (None, split)
    ]
    if not plans:
        raise NoTasks
    separate = _separate(config)
    separate.out.mkdir(parents=True)
    supervisor = Supervisor(separate.restarts, display.notice)
    with (
        Launcher(separate.logs_dir, stop, supervisor) as launcher,
        kafka_to_run_on(separate, launcher, display) as kafka,
    ):
        system = System(separate, kafka, launcher, display)
        display.phase("starting gateway, manager, workers, agents")
        with system.running():
            announce_weights(separate, kafka, weights)
            system.restart_scheduler(training=False)
            system.wait_until_ready()
            show = system.progress.apply
            results = dict[str, EvaluationResult]()
            for plan in plans:
                display.phase(f"evaluating {len(plan.rows)} tasks ({plan.split})")
                results[plan.split] = evaluate(
                    kafka, plan, system.wait_for, now_ms, show, launcher.stopping
                )
            display.phase("stopping all processes in order")
    sampling = {plan.split: shown_sampling(plan.overrides) for plan in plans}
    ended = EvaluationRun(separate.out, weights, results, sampling)
    several = choice.tasks is None and bool(section.sets)
    write_result(separate.out, _weights(ended), results, sampling, several)
    return ended


def lines(ended: EvaluationRun) -> list[str]:
    """Return what the terminal shows about an evaluation."""
    several = len(ended.results) > 1
    results = [
        f"{split}: {result}" if several else f"{result}" for split, result in ended.results.items()
    ]
    version = f"version {ended.weights.version}"
    return [version, *results, f"data, logs and figures are in {ended.out}"]


def shown_sampling(overrides: Sampling | None) -> Mapping[str, float]:
    """Return the parameters that replace the policy's, by name."""
    chosen = {} if overrides is None else {name: vars(overrides)[name] for name in _SAMPLING}
    return {name: value for name, value in chosen.items() if value is not None}


def _weights(ended: EvaluationRun) -> dict[str, object]:
    return {"weights": str(ended.weights.directory), "version": ended.weights.version}


def _separate(config: RunConfig) -> RunConfig:
    """Return the configuration with its own directory and topics, and without a trainer.

    All workers roll out: the run's strategy may let none do so without a batch to train.
    """
    folders = (config.out / EVALUATIONS / str(number) for number in count(1))
    out = next(folder for folder in folders if not folder.exists())
    rollouts = [worker for worker in config.workers if "rollout" in worker.tags]
    workers = tuple(worker.model_copy(update={"tags": ("rollout",)}) for worker in rollouts)
    kafka = config.kafka
    if kafka is not None:
        # On a shared cluster, separate topics keep the evaluation out of the run's topics.
        prefix = f"{kafka.topic_prefix}evaluation-{now_ms()}."
        kafka = kafka.model_copy(update={"topic_prefix": prefix})
    scheduler = config.scheduler.model_copy(update={"policy": "multiplexed", "functions": {}})
    changes = {"out": out, "workers": workers, "kafka": kafka, "scheduler": scheduler}
    return config.model_copy(update=changes)


def _plan(
    config: RunConfig, split: str, place: int, rows: Sequence[TaskRow], choice: EvaluationChoice
) -> EvaluationPlan:
    sampling = config.evaluation.terms(split).sampling
    if choice.temperature is not None:
        sampling = sampling.model_copy(update={"temperature": choice.temperature})
    return EvaluationPlan(
        label=f"{config.run.id}-eval-{now_ms()}-{place}",
        policy=config.run.policy,
        split=split,
        rows=rows,
        samples=choice.samples or config.evaluation.terms(split).samples,
        time_limit_s=config.pacing.task_timeout_s,
        weights=config.trainer.reward_weights,
        overrides=sampling.overrides,
        terms=PassTerms(*config.evaluation.passing(split)),
    )
