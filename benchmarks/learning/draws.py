"""Task draws as the scheduler makes them: its fold of `control`, its samplers, without Kafka.

The records are those that a run would have: groups are admitted, get ready, and are trained. Called
by `loop.py`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.learning.methods import GROUP_SIZE, POLICY
from benchmarks.trail.game import TrailTask
from seamlessflow.scheduler.sampling.draws import Drawn, next_draws, sampling_of
from seamlessflow.scheduler.settings import PacingSection, RunSection, SchedulerSettings
from seamlessflow.scheduler.state import state as control_state
from seamlessflow.scheduler.state.arms import Arms, PassCounting
from seamlessflow.scheduler.state.state import State
from seamlessflow.scheduler.tasks.file import task_row
from seamlessflow.scheduler.tasks.source import TaskRow, TaskSource
from seamlessflow.schemas import records as r

_SOURCE = "train"


class Draws:
    """A run's tasks, drawn one batch after another."""

    def __init__(self, tasks: Sequence[TrailTask], section: Mapping[str, Any], seed: int) -> None:
        """Index the tasks. `section`: settings for `pacing`."""
        settings = PacingSection.model_validate({**section, "seed": seed, "tasks": "trail"})
        self._settings = SchedulerSettings(run=RunSection(), pacing=settings)
        rows = [replace(_row(task), split=_SOURCE) for task in tasks]
        find = {row.task_id: row for row in rows}.get
        self._source = TaskSource(rows, find, seed)
        sizes = (seed, GROUP_SIZE, 0)
        self._sampling = sampling_of(
            settings.sampler, settings.terms, settings.functions, self._source, sizes
        )
        counted = settings.sampler
        self._arms = Arms(
            PassCounting(
                memory=counted.memory, own_memory=counted.own_memory, passes=counted.passes
            )
        )
        self._state = State()

    def next(self, count: int) -> list[tuple[str, TrailTask, int]]:
        """Return name, task and sample count for each of the next groups."""
        groups: list[tuple[str, TrailTask, int]] = []
        while len(groups) < count:  # a sampler may choose fewer, such as at the end of a pass
            left = count - len(groups)
            drawn = next_draws(self._state, self._arms, self._source, self._sampling, left)
            for number, each in enumerate(drawn, self._state.first.ledger.admitted):
                name = f"group-{number}"
                self._fold(_admitted(name, each))
                task: TrailTask = json.loads(each.row.payload)
                groups.append((name, task, each.samples or GROUP_SIZE))
        return groups

    def ready(self, group: str, returns: Sequence[float], turns: Sequence[int]) -> None:
        """Note a group's outcome."""
        self._fold(
            r.GroupReady(
                at_ms=0,
                group_id=group,
                reward_mean=sum(returns) / len(returns),
                reward_std=0.0,
                trainable_tokens=1,
                returns=tuple(returns),
                turns=tuple(turns),
            )
        )

    def trained(self, step: int, groups: Sequence[str]) -> None:
        """Note that a step was trained from these groups."""
        used = tuple(r.StepGroup(group_id=name) for name in groups)
        commit = r.StepCommitted(
            at_ms=0, step=step - 1, lineage="benchmark", version=step, groups=used
        )
        self._fold(commit)
        self._fold(
            r.WeightsPublished(
                at_ms=0,
                policy=POLICY,
                step=step,
                lineage="benchmark",
                version=step,
                directory="",
                manifest_sha256="",
            )
        )

    def _fold(self, record: r.Record) -> None:
        self._arms.apply(self._state, record)
        self._state = control_state.apply(self._state, record)


def _row(task: TrailTask) -> TaskRow:
    return task_row(task["id"], {**task, "metadata": {"level": task["level"]}})


def _admitted(name: str, drawn: Drawn) -> r.GroupAdmitted:
    return r.GroupAdmitted(
        epoch=0,
        at_ms=0,
        group_id=name,
        task_id=drawn.row.task_id,
        version=0,
        deadline_ms=0,
        split=_SOURCE,
        policy=POLICY,
        sampler=drawn.rule.name,
        sampler_figures=drawn.rule.figures,
        arms=drawn.arms,
    )
