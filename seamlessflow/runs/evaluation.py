"""What a policy earns on tasks that are not trained on: issue them, wait for all, take the mean.

Apart from training: the sessions have purpose `eval` and groups of their own. A session that the
environment or the infrastructure spoilt is tried again. `Measurement` is pure, `measure` the shell.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from infra.kafka.producer import Producer
from infra.kafka.reader import Reader
from infra.settings import KafkaSettings
from scheduler.decisions.task_source import TaskRow
from schemas.identity import session_id
from schemas.records import Task, Trajectory
from schemas.topics import TASKS, TRAJECTORIES
from trainer.data.sessions import session_return

MOST_ATTEMPTS = 3
_POLL_S = 0.05
_GRACE_S = 60.0


@dataclass(frozen=True)
class Evaluation:
    """What came out of it."""

    reward: float | None
    """Mean terminal reward; None where no session counted."""
    error: float | None
    """Standard error of the mean."""
    sessions: int
    failed: int
    """Sessions that did not count, tried again or not."""
    missing: int
    """Samples without any session that counts."""


@dataclass(frozen=True)
class Plan:
    """What is to be measured. `label` makes ids: no two measurements of a log may share it."""

    label: str
    policy: str
    split: str
    rows: Sequence[TaskRow]
    samples: int
    time_limit_s: float


@dataclass
class Measurement:
    """The sessions of one evaluation."""

    plan: Plan
    rewards: dict[tuple[int, int], float] = field(default_factory=dict)
    """By task number and sample."""
    failed: int = 0
    _given_up: set[tuple[int, int]] = field(default_factory=set)
    _expected: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether every sample has come to an end."""
        return len(self.rewards) + len(self._given_up) == len(self.plan.rows) * self.plan.samples

    def first(self, now_ms: int) -> list[Task]:
        """All tasks, once each sample."""
        return [
            self._task(number, sample, 0, now_ms)
            for number in range(len(self.plan.rows))
            for sample in range(self.plan.samples)
        ]

    def take(self, trajectory: Trajectory, now_ms: int) -> list[Task]:
        """Takes in a finalized session; returns what is to be tried again."""
        place = self._expected.pop(trajectory.session_id, None)
        if place is None:
            return []
        number, sample, attempt = place
        reward = session_return(trajectory) if trajectory.cause == "policy" else None
        if reward is not None:
            self.rewards[number, sample] = reward
            return []
        self.failed += 1
        if attempt + 1 < MOST_ATTEMPTS:
            return [self._task(number, sample, attempt + 1, now_ms)]
        self._given_up.add((number, sample))
        return []

    def result(self) -> Evaluation:
        """What is known now."""
        rewards = list(self.rewards.values())
        several = len(rewards) > 1
        return Evaluation(
            reward=fmean(rewards) if rewards else None,
            error=stdev(rewards) / len(rewards) ** 0.5 if several else None,
            sessions=len(rewards),
            failed=self.failed,
            missing=len(self.plan.rows) * self.plan.samples - len(rewards),
        )

    def _task(self, number: int, sample: int, attempt: int, now_ms: int) -> Task:
        plan, row = self.plan, self.plan.rows[number]
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
        )


WaitFor = Callable[[str, Callable[[], bool], float], None]
"""Waits until a condition holds, so many seconds at most."""


def measure(
    settings: KafkaSettings, plan: Plan, wait_for: WaitFor, now_ms: Callable[[], int]
) -> Evaluation:
    """Issues the tasks and waits for their sessions. Raises what `wait_for` raises."""
    measurement = Measurement(plan)
    places = [(TRAJECTORIES.name, number) for number in range(TRAJECTORIES.partitions)]
    producer, reader = Producer(settings, "evaluation"), Reader(settings, "evaluation")
    try:
        reader.assign(reader.ends(places))
        _issue(producer, measurement.first(now_ms()))

        def finished() -> bool:
            for item in reader.poll(_POLL_S):
                if isinstance(item.record, Trajectory):
                    _issue(producer, measurement.take(item.record, now_ms()))
            return measurement.done

        limit_s = MOST_ATTEMPTS * plan.time_limit_s + _GRACE_S
        wait_for(f"evaluation {plan.label}", finished, limit_s)
    finally:
        reader.close()
        producer.close()
    return measurement.result()


def _issue(producer: Producer, tasks: Sequence[Task]) -> None:
    for task in tasks:
        producer.send(TASKS.name, task, key=task.group_id)
