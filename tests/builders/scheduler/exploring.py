"""A run whose tasks are explored first: the scheduler's decisions, and what a trainer answers."""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from seamlessflow.scheduler.decisions import pacing
from seamlessflow.scheduler.sampling.draws import TaskSampling, sampling_of
from seamlessflow.scheduler.sampling.settings import SamplerSection
from seamlessflow.scheduler.settings import PacingSection, RunSection, SchedulerSettings
from seamlessflow.scheduler.state.arms import Arms
from seamlessflow.scheduler.state.state import State, apply
from seamlessflow.scheduler.tasks.mixture import TaskSets
from seamlessflow.schemas import records as r
from seamlessflow.schemas.identity import session_id
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.scheduler.inputs import holds, scheduler_settings
from tests.builders.scheduler.sampling import source_of

UNDER_WAY = 3
BEST, WORST, SAMPLES = 2, 2, 8
RUN = RunSection(groups_per_step=2, group_size=BEST + WORST, lag=1, steps=10)
CREDITS = (RUN.lag + 1) * RUN.groups_per_step


def exploring(tasks: int = 12, **changes: object) -> tuple[SchedulerSettings, TaskSampling]:
    """Return the settings of a run that explores, and its sampling."""
    values = {"samples": SAMPLES, "best": BEST, "worst": WORST, "under_way": UNDER_WAY, **changes}
    sampler = SamplerSection.model_validate({"name": "explore", **values})
    section = PacingSection(tasks=Path("tasks"), sampler=sampler)
    settings = scheduler_settings(RUN, pacing=section)
    sizes = (section.seed, RUN.group_size, RUN.turn_limit)
    return settings, sampling_of(sampler, section.terms, {}, source_of(tasks), sizes)


class ExploringRun:
    """Its log is `control`; state and statistics are folds of it."""

    def __init__(self, tasks: int = 12) -> None:
        self.settings, self.sampling = exploring(tasks)
        self.source = source_of(tasks)
        self.log: list[Record] = []
        self.state = State()
        self.arms = Arms()
        self.happen(control.claimed(), control.published(0), control.joined("w"), *holds("w"))

    def decided(self) -> list[r.GroupAdmitted]:
        """Return the groups that the scheduler admits now."""
        return pacing.admissions(
            self.state, self.settings, self.source, 0, self.arms, self.sampling
        )

    def admit(self) -> list[r.GroupAdmitted]:
        """Append the groups that the scheduler admits now."""
        admitted = self.decided()
        self.happen(*admitted)
        return admitted

    def issued(self) -> list[r.Task]:
        """Return the tasks of all groups that run."""
        ledger = self.state.first.ledger
        return pacing.tasks(ledger, {}, self.settings, TaskSets(self.source), 0)

    def explore(self, group: str, returns: Sequence[float]) -> None:
        """Let the sessions of an exploration end with these returns."""
        self.happen(ready_with(group, returns))

    def happen(self, *records: Record) -> None:
        """Append to `control`."""
        for record in records:
            self.arms.apply(self.state, record, len(self.log))
            self.state = apply(self.state, record)
            self.log.append(record)

    def take_over(self, epoch: int) -> None:
        """Let another scheduler go on, with a fold of the log alone."""
        self.happen(control.claimed(epoch=epoch))
        self.state = reduce(apply, self.log, State())
        self.arms = Arms()
        before = State()
        for offset, record in enumerate(self.log):
            self.arms.apply(before, record, offset)
            before = apply(before, record)


def ready_with(group: str, returns: Sequence[float]) -> r.GroupReady:
    """Return the record of a ready exploration whose sessions have these returns, by sample."""
    return control.ready(
        group,
        sessions=tuple(session_id(group, sample, 0) for sample in range(len(returns))),
        returns=tuple(returns),
        turns=(1,) * len(returns),
        texts=tuple(f"text-{sample}" for sample in range(len(returns))),
    )
