"""A trainer without a process, for tests of the scheduler: results of groups, and steps of them."""

import random
from collections.abc import Sequence

from seamlessflow.infra.clock import now_ms
from seamlessflow.schemas import records as r
from tests.builders.records import control
from tests.builders.scheduler.control_log import ControlLog


class ScriptedTrainer:
    """It gives each group two sessions, drawn from the seed, and trains so many groups a step."""

    def __init__(self, log: ControlLog, seed: int, groups_per_step: int) -> None:
        self._log = log
        self._random = random.Random(seed)
        self._batch = groups_per_step
        self._finished: list[str] = []
        self.trained = 0
        """Number of groups that were trained."""

    @property
    def running(self) -> list[str]:
        """Groups that were admitted and have no result."""
        admitted = [record.group_id for record in self._log.all(r.GroupAdmitted)]
        return [group for group in admitted if group not in self._finished]

    def go_on(self) -> None:
        """Train a step if there are groups enough, else finish one more as soon as it runs."""
        ready = self._finished[self.trained :]
        if len(ready) >= self._batch:
            return self._train(ready[: self._batch])
        count = len(self._finished) + 1
        self._log.wait(r.GroupAdmitted, count=count)
        return self._finish(self._random.choice(self.running))

    def _finish(self, group: str) -> None:
        returns = tuple(float(self._random.random() < 0.6) for _ in range(2))
        turns = tuple(self._random.randint(1, 9) for _ in range(2))
        self._finished.append(group)
        self._log.write(control.ready(group, returns=returns, turns=turns, at_ms=now_ms()))
        self._log.wait(r.GroupReady, count=len(self._finished))

    def _train(self, groups: Sequence[str]) -> None:
        step = self.trained // self._batch
        self.trained += len(groups)
        now = {"at_ms": now_ms()}
        self._log.write(
            control.committed(step, groups, **now),
            *(control.consumed(group, step, **now) for group in groups),
            control.published(step + 1, **now),
            control.completed(step, **now),
        )
        self._log.wait(r.StepCompleted, count=step + 1)
