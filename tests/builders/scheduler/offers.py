"""A run that goes on from its ended sessions. Its log is `control`, and its returns are drawn."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from seamlessflow.scheduler.decisions import pacing
from seamlessflow.scheduler.sampling.draws import sampling_of
from seamlessflow.scheduler.settings import PacingSection, RunSection
from seamlessflow.scheduler.state.arms import Arms
from seamlessflow.scheduler.state.state import State, apply, from_json, to_json
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.scheduler.inputs import holds, scheduler_settings
from tests.builders.scheduler.sampling import source_of

SHARE = 0.25
SIZE = 4
STARTED: Sequence[Record] = (
    control.claimed(),
    control.published(0),
    control.joined("w"),
    *holds("w"),
)


def offering(group: str, *returns: float, turns: int = 3, **changes: Any) -> r.GroupReady:
    """Return the result of a group whose sessions had so many turns."""
    count = len(returns)
    return control.ready(
        group,
        sessions=tuple(f"{group}.{number}.0" for number in range(count)),
        returns=returns,
        turns=(turns,) * count,
        lengths=(10 * turns,) * count,
        first_offsets=tuple(range(100, 100 + count)),
        **changes,
    )


class ForkingRun:
    """A run with pacing alone: groups get ready, or are dropped, and steps are trained."""

    def __init__(
        self,
        share: float = SHARE,
        *,
        tasks: int = 12,
        sampler: Mapping[str, Any] | None = None,
        terms: Mapping[str, Any] | None = None,
        groups: int = 4,
        size: int = SIZE,
        seed: int = 0,
    ) -> None:
        """`share` of forks; `groups` of `size` samples a step; `seed` of the draws."""
        pacing = PacingSection.model_validate(
            {
                "tasks": "tasks",
                "forks_live": share,
                "refill": 50,
                "sampler": sampler or {},
                "terms": terms or {},
                "seed": seed,
            }
        )
        run = RunSection(groups_per_step=groups, group_size=size, lag=1, steps=100_000)
        self.settings = scheduler_settings(run, pacing=pacing)
        self.source = source_of(tasks)
        sizes = (seed, size, 0)
        self.sampling = sampling_of(
            pacing.sampler, pacing.terms, {}, self.source, sizes, pacing.live_forks
        )
        self.state = State()
        self.arms = Arms()
        self.log: list[Record] = []
        self.happen(*STARTED)

    def due(self) -> list[r.GroupAdmitted]:
        """Return the groups that the scheduler would admit now."""
        return pacing.admissions(
            self.state, self.settings, self.source, 0, self.arms, self.sampling
        )

    def admit(self) -> list[r.GroupAdmitted]:
        """Let the scheduler admit what is due."""
        admitted = self.due()
        self.happen(*admitted)
        return admitted

    def happen(self, *records: Record) -> None:
        """Append to `control`."""
        for record in records:
            self.arms.apply(self.state, record, len(self.log))
            self.state = apply(self.state, record)
            self.log.append(record)

    def finish(self, group: r.GroupAdmitted, drawn: random.Random, rate: float = 0.5) -> None:
        """Let a group get ready and be trained, or be dropped; `rate`: chance of a pass."""
        if drawn.random() < 0.2:
            reason = drawn.choice(["failed", "filtered", "expired"])
            self.happen(control.dropped(group.group_id, reason))
            return
        returns = [float(drawn.random() < rate) for _ in range(group.group_size)]
        self.happen(offering(group.group_id, *returns, turns=drawn.randint(1, 5)))
        self.happen(control.consumed(group.group_id))

    def take_over(self) -> None:
        """Let another scheduler go on, from a snapshot of the state and all statistics."""
        restored = from_json(to_json(self.state))
        assert restored is not None
        self.state = restored

    def forks(self) -> Mapping[str, r.ParentPlace]:
        """Return the places of the groups that go on from an ended session."""
        return {
            record.group_id: record.fork_at
            for record in self.log
            if isinstance(record, r.GroupAdmitted) and record.fork_at is not None
        }
