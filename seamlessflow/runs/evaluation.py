"""Evaluation of a policy on tasks that it is not trained on: issue them, wait, take the mean.

Its sessions have the purpose `eval` and their own groups, so none reaches an optimizer step. A
session that the environment or the infrastructure spoilt is tried again. `Evaluation` is pure,
`evaluate` connects it to Kafka.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.reader import Reader, ReadingRules
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.worker.judged_rewards import JUDGE
from seamlessflow.reports.evaluations.result import EvaluatedTask, EvaluationResult
from seamlessflow.scheduler.tasks.source import TaskRow
from seamlessflow.schemas.identity import session_id
from seamlessflow.schemas.records import SampleFailed, Sampling, Task, Trajectory
from seamlessflow.schemas.topics import TASKS, TRAJECTORIES
from seamlessflow.trainer.data.credit.returns import RewardWeights, session_return, unjudged
from seamlessflow.trainer.data.figures.chances import USUAL, PassTerms
from seamlessflow.trainer.data.figures.evaluation import EvaluatedGroup, figures
from seamlessflow.trainer.data.lengths import SessionCost, cost_of

MOST_ATTEMPTS = 3
_POLL_S = 0.05
_GRACE_S = 60.0


@dataclass(frozen=True)
class EvaluationPlan:
    """Tasks to evaluate on. Ids are made from `label`: it must be new on the log."""

    label: str
    policy: str
    split: str
    rows: Sequence[TaskRow]
    samples: int
    time_limit_s: float
    weights: RewardWeights
    """Weights for the named rewards that add up to a return."""
    overrides: Sampling | None = None
    """Sampling parameters instead of the policy's."""
    terms: PassTerms = USUAL


@dataclass
class Evaluation:
    """An evaluation's state: a fold over finalized sessions."""

    plan: EvaluationPlan
    rewards: dict[tuple[int, int], float] = field(default_factory=dict)
    """By task number and sample, as the costs."""
    costs: dict[tuple[int, int], SessionCost] = field(default_factory=dict)
    failures: list[SampleFailed] = field(default_factory=list)
    """Sessions that did not count, in the order in which they ended."""
    _given_up: set[tuple[int, int]] = field(default_factory=set)
    _expected: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Task number, sample and attempt for each session that is under way."""

    @property
    def done(self) -> bool:
        """True once every sample has a reward or was given up."""
        return len(self.rewards) + len(self._given_up) == len(self.plan.rows) * self.plan.samples

    def first_tasks(self, now_ms: int) -> list[Task]:
        """Return the first attempt at every sample of every task."""
        return [
            self._task(number, sample, 0, now_ms)
            for number in range(len(self.plan.rows))
            for sample in range(self.plan.samples)
        ]

    def apply(self, trajectory: Trajectory, now_ms: int) -> list[Task]:
        """Fold in a finalized session; return the next attempt if the sample is tried again."""
        # `pop`: a repeated trajectory of the same session counts once.
        expected = self._expected.pop(trajectory.session_id, None)
        if expected is None:
            return []
        number, sample, attempt = expected
        judged = trajectory.cause == "policy"
        reward = session_return(trajectory, self.plan.weights) if judged else None
        if reward is not None:
            self.rewards[number, sample] = reward
            self.costs[number, sample] = cost_of(trajectory)
            return []
        self.failures.append(
            SampleFailed(
                at_ms=now_ms,
                group_id=trajectory.group_id,
                sample=sample,
                attempt=attempt,
                cause=trajectory.cause,
                detail=_reason(trajectory, self.plan.weights),
            )
        )
        if attempt + 1 < MOST_ATTEMPTS and trajectory.cause != JUDGE:
            return [self._task(number, sample, attempt + 1, now_ms)]
        self._given_up.add((number, sample))
        return []

    def result(self) -> EvaluationResult:
        """Return the figures for the sessions so far."""
        tasks = self.tasks()
        counted = [
            EvaluatedGroup.from_returns(task.returns, task.costs) for task in tasks if task.returns
        ]
        evaluated = figures(counted, self.plan.terms)
        return EvaluationResult(
            reward=evaluated.reward,
            error=evaluated.error,
            sessions=evaluated.sessions,
            failed=len(self.failures),
            missing=len(self.plan.rows) * self.plan.samples - evaluated.sessions,
            pass_at=evaluated.pass_at,
            pass_at_range=evaluated.pass_at_range,
            pass_all=evaluated.pass_all,
            pass_all_range=evaluated.pass_all_range,
            success=self.plan.terms.success,
            turns=evaluated.turns,
            sampled_tokens=evaluated.sampled_tokens,
            prompt_tokens=evaluated.prompt_tokens,
            tasks=tasks,
        )

    def tasks(self) -> tuple[EvaluatedTask, ...]:
        """Return each task with its sessions that counted, by their samples."""
        by_task: dict[int, list[tuple[int, int]]] = {}
        for place in sorted(self.rewards):
            by_task.setdefault(place[0], []).append(place)
        return tuple(
            EvaluatedTask(
                row.task_id,
                tuple(self.rewards[place] for place in by_task.get(number, ())),
                tuple(self.costs[place] for place in by_task.get(number, ())),
            )
            for number, row in enumerate(self.plan.rows)
        )

    def _task(self, number: int, sample: int, attempt: int, now_ms: int) -> Task:
        plan = self.plan
        row = self.plan.rows[number]
        group_id = f"{plan.label}-{number}"
        self._expected[session_id(group_id, sample, attempt)] = (number, sample, attempt)
        return Task(
            policy=plan.policy,
            purpose="eval",
            split=plan.split,
            task_id=row.task_id,
            group_id=group_id,
            sample=sample,
            attempt=attempt,
            group_size=plan.samples,
            metadata=row.metadata,
            payload=row.payload,
            issued_at_ms=now_ms,
            deadline_ms=now_ms + round(1000 * plan.time_limit_s),
            overrides=plan.overrides,
        )


def _reason(trajectory: Trajectory, weights: RewardWeights) -> str:
    if trajectory.cause == "policy":
        return unjudged(trajectory, weights)
    return trajectory.reason or trajectory.status


WaitFor = Callable[[str, Callable[[], bool], float], None]
"""Waits for a condition, given its name, the condition and the most seconds to wait."""


def evaluate(
    settings: KafkaSettings,
    plan: EvaluationPlan,
    wait_for: WaitFor,
    now_ms: Callable[[], int],
    show: Callable[[SampleFailed], None],
    stopping: Stopping,
) -> EvaluationResult:
    """Issue the tasks, wait for their sessions, and show the failed ones.

    Raises what `wait_for` raises, and `KafkaUnavailable`, also once `stopping`.
    """
    evaluation = Evaluation(plan)
    cluster = find_cluster(settings, [TASKS, TRAJECTORIES], stopping)
    partitions = [(TRAJECTORIES.name, number) for number in cluster.numbers(TRAJECTORIES)]
    producer = Producer(settings, "evaluation")
    reader = Reader(settings, "evaluation", rules=ReadingRules(folds=True), stopping=stopping)
    try:
        # The place to read from is fixed before the first task can have an answer.
        reader.assign(reader.ends(partitions))
        _issue(producer, evaluation.first_tasks(now_ms()))

        def finished() -> bool:
            shown = len(evaluation.failures)
            for item in reader.poll(_POLL_S):
                if isinstance(item.record, Trajectory):
                    _issue(producer, evaluation.apply(item.record, now_ms()))
            for failure in evaluation.failures[shown:]:
                show(failure)
            return evaluation.done

        limit_s = MOST_ATTEMPTS * plan.time_limit_s + _GRACE_S
        wait_for(f"evaluation {plan.label}", finished, limit_s)
    finally:
        reader.close()
        producer.close()
    return evaluation.result()


def _issue(producer: Producer, tasks: Sequence[Task]) -> None:
    for task in tasks:
        producer.send(TASKS.name, task, key=task.group_id)
