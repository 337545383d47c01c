"""Samplers at work: tasks with planted statistics, questions, and a run that draws by a sampler."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from seamlessflow.scheduler.sampling.ask import Ask
from seamlessflow.scheduler.sampling.draws import Drawn, TaskSampling, next_draws
from seamlessflow.scheduler.sampling.index import indexed
from seamlessflow.scheduler.state.arms import Arm, Arms, PassCounting, arm_hash
from seamlessflow.scheduler.state.ledger import source_arm, task_arm
from seamlessflow.scheduler.state.state import State, apply, from_json, to_json
from seamlessflow.scheduler.tasks.mixture import Draws
from seamlessflow.scheduler.tasks.source import TaskRow, TaskSource
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control

_LATER = 1 << 60
"""Offset of `control` behind all of these."""


def source_of(
    count: int, name: str = "train", metadata: Mapping[int, Mapping[str, str]] | None = None
) -> TaskSource:
    """Return a shuffled source of the tasks `NAME-0` to `NAME-(count - 1)`; `metadata` by place."""
    words = metadata or {}
    rows = tuple(
        TaskRow(f"{name}-{place}", b"{}", words.get(place, {}), split=name)
        for place in range(count)
    )
    return TaskSource(rows, {row.task_id: row for row in rows}.get, name=name)


def planted(arms: Mapping[str, Arm], counting: PassCounting | None = None) -> Arms:
    """Return these statistics by name, as a scheduler reads them from their topic."""
    made = Arms(counting or PassCounting())
    for name, arm in arms.items():
        made.restore(r.ArmSnapshot(epoch=1, arm=name, control_offset=0, **asdict(arm)), _LATER)
    return made


def passes(passed: int, failed: int, **changes: Any) -> Arm:
    """Return the statistics behind groups with so many sessions, whose newest had them all."""
    arm = Arm(
        passed=float(passed),
        failed=float(failed),
        ready=1,
        last_passed=passed,
        last_counted=passed + failed,
    )
    return replace(arm, **changes)


def ask_of(tasks: Sequence[Arm], count: int = 1, pool: Arm | None = None, **changes: Any) -> Ask:
    """Return a question for tasks with these statistics; those of a `pool` are of all together."""
    source = source_of(len(tasks))
    arms = {task_arm(f"train-{place}"): arm for place, arm in enumerate(tasks)}
    if pool is not None:
        arms[source_arm("train")] = pool
    all_arms = planted(arms)
    seed: int = changes.pop("seed_of_draw", 0)
    ask = Ask(
        count=count,
        draw=0,
        samples=8,
        random=random.Random(seed),
        source="train",
        figures=all_arms.arm(source_arm("train")).figures,
        pool=all_arms.arm(source_arm("train")),
        tasks=indexed(source.rows, "train", None),
        arms=all_arms,
    )
    return replace(ask, **changes)


def keys_of(task_ids: Collection[str]) -> frozenset[int]:
    """Return the keys of tasks that are under way."""
    return frozenset(arm_hash(task_arm(task_id)) for task_id in task_ids)


class SampledRun:
    """A run of which only draws and results count. Its log is `control`."""

    def __init__(self, draws: Draws, sampling: TaskSampling) -> None:
        self.draws = draws
        self.sampling = sampling
        self.state = State()
        self.arms = Arms()
        self.log: list[Record] = []
        self._topic: dict[str, r.ArmSnapshot] = {}
        self._groups: dict[str, str] = {}
        """Newest group by task."""

    def admit(self, count: int) -> list[Drawn]:
        """Admit groups for the next tasks, and return these."""
        drawn = next_draws(self.state, self.arms, self.draws, self.sampling, count)
        first = self.state.first.ledger.admitted
        for number, each in enumerate(drawn, first):
            self._groups[each.row.task_id] = f"g{number}"
            self.happen(
                control.admitted(
                    f"g{number}",
                    each.row.task_id,
                    split=each.row.split,
                    sampler=each.rule.name,
                    sampler_figures=dict(each.rule.figures),
                    arms=each.arms,
                )
            )
        return drawn

    def names(self, count: int) -> list[str]:
        """Admit groups for the next tasks, and return the ids of these."""
        return [each.row.task_id for each in self.admit(count)]

    def finish(self, task_id: str, *returns: float) -> None:
        """Let the group of a task get ready and be trained."""
        group = self._groups[task_id]
        self.happen(
            control.ready(group, returns=returns, turns=(1,) * len(returns)),
            control.consumed(group),
        )

    def drop(self, task_id: str, reason: str = "filtered") -> None:
        """Let the group of a task be dropped."""
        self.happen(control.dropped(self._groups[task_id], reason))

    def train(self, step: int) -> None:
        """Let so many steps be trained."""
        self.happen(control.published(step, step=step))

    def happen(self, *records: Record) -> None:
        """Append to `control`."""
        for record in records:
            self.arms.apply(self.state, record, len(self.log))
            self.state = apply(self.state, record)
            self.log.append(record)

    def take_over(self) -> None:
        """Let another scheduler go on, from a snapshot and from the topic of arms."""
        for snapshot in self.arms.snapshots(1, len(self.log) - 1):
            self._topic[snapshot.arm] = snapshot
        restored = from_json(to_json(self.state))
        assert restored is not None
        self.state = restored
        self.arms = Arms()
        for snapshot in self._topic.values():
            self.arms.restore(snapshot, len(self.log))
