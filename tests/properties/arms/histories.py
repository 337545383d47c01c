"""Random histories of `control`: admissions, results, steps, claims, records that come twice."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control

RUNS: Sequence[tuple[str, ...]] = ((), ("a", "b"))
"""Policies of the runs; a run of one policy names none."""
_TASKS = 5
_RETURNS = (0.0, 0.0, 0.5, 1.0, 1.0, 2.0)


@dataclass(eq=False)
class _LiveGroup:
    admission: r.GroupAdmitted
    running: set[str]
    """Policies that have no result of it."""
    ready: set[str] = field(default_factory=set)
    """Policies that have not trained it yet."""


class History:
    """Records of a run, drawn one after another."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.policies = self._random.choice(RUNS)
        self.records: list[Record] = []
        self._epoch = 1
        self._numbers = 0
        self._steps = dict.fromkeys(self.policies or ("",), 0)
        self._live: dict[str, _LiveGroup] = {}
        self._ended: list[str] = []
        self._evaluations: list[str] = []

    def extend(self, count: int) -> None:
        """Draw so many further events."""
        events: Sequence[tuple[Callable[[], None], int]] = (
            (self._admit, 6),
            (self._get_ready, 6),
            (self._consume, 3),
            (self._drop, 1),
            (self._publish, 3),
            (self._skip, 1),
            (self._admit_evaluation, 1),
            (self._finish_evaluation, 1),
            (self._repeat_admission, 1),
            (self._repeat_result, 1),
            (self._admit_late, 1),
            (self._claim, 1),
            (self._strange_result, 1),
        )
        calls, weights = zip(*events, strict=True)
        for event in self._random.choices(calls, weights, k=count):
            event()

    def _write(self, record: Record) -> None:
        self.records.append(record)

    def _admission(self, **changes: Any) -> r.GroupAdmitted:
        self._numbers += 1
        draw = self._random
        task = draw.randrange(_TASKS)
        figures = {"pass": 1.0 * self._numbers} if draw.random() < 0.5 else {"rate": draw.random()}
        fields: dict[str, Any] = {
            "epoch": self._epoch,
            "split": "easy" if task < 2 else "hard",
            "arms": draw.choice(
                [
                    (),
                    (f"pool:level:{task % 2}",),
                    (f"task:task-{task}", "more"),
                    (f"past@{task}",),
                ]
            ),
            "sampler_figures": figures if draw.random() < 0.7 else {},
            "parent_session": draw.choice(["", "", "", "s"]),
            "purpose": draw.choice(["train", "train", "train", "explore"]),
            "explored": draw.choice(["", "", "", "", "sampled before"]),
        }
        return control.admitted(f"g{self._numbers}", f"task-{task}", **{**fields, **changes})

    def _admit(self) -> None:
        admission = self._admission()
        self._live[admission.group_id] = _LiveGroup(admission, set(self._steps))
        self._write(admission)

    def _admit_evaluation(self) -> None:
        admission = self._admission(purpose="eval")
        self._evaluations.append(admission.group_id)
        self._write(admission)

    def _admit_late(self) -> None:
        """Write a decision of a scheduler that was replaced, and its result."""
        if self._epoch > 1:
            late = self._admission(epoch=self._random.randrange(1, self._epoch))
            self._write(late)
            self._write(self._result(late.group_id, self._policy()))

    def _repeat_admission(self) -> None:
        if self._live:
            self._write(self._random.choice([*self._live.values()]).admission)

    def _get_ready(self) -> None:
        group = self._group(lambda group: bool(group.running))
        if group is not None:
            policy = self._random.choice(sorted(group.running))
            group.running.discard(policy)
            group.ready.add(policy)
            self._write(self._result(group.admission.group_id, policy))
            if group.admission.purpose == "explore":  # it is never trained
                self._over(group, policy)

    def _finish_evaluation(self) -> None:
        if self._evaluations:
            self._write(self._result(self._evaluations.pop(0), self._policy()))

    def _repeat_result(self) -> None:
        """Write another result of a group that had all of them."""
        if self._ended:
            self._write(self._result(self._random.choice(self._ended), self._policy()))

    def _strange_result(self) -> None:
        self._write(self._result("elsewhere", self._policy()))

    def _drop(self) -> None:
        group = self._group(lambda group: bool(group.running or group.ready))
        if group is not None:
            policy = self._random.choice(sorted(group.running | group.ready))
            reason = self._random.choice(["filtered", "failed", "no_token"])
            self._write(control.dropped(group.admission.group_id, reason, policy=policy))
            self._over(group, policy)

    def _consume(self) -> None:
        group = self._group(lambda group: bool(group.ready))
        if group is not None:
            policy = self._random.choice(sorted(group.ready))
            self._write(control.consumed(group.admission.group_id, policy=policy))
            self._over(group, policy)

    def _over(self, group: _LiveGroup, policy: str) -> None:
        group.running.discard(policy)
        group.ready.discard(policy)
        if not group.running and not group.ready:
            del self._live[group.admission.group_id]
            self._ended.append(group.admission.group_id)

    def _publish(self) -> None:
        policy = self._policy()
        back = self._random.choice([-1, -1, -1, -1, -3, 2])  # a trainer that resumes repeats steps
        self._steps[policy] = max(0, self._steps[policy] - back)
        step = self._steps[policy]
        self._write(control.published(step, step=step, policy=policy))

    def _skip(self) -> None:
        policy = self._policy()
        self._write(control.skipped(self._steps[policy], policy=policy))
        self._steps[policy] += 1

    def _claim(self) -> None:
        self._epoch += 1
        self._write(control.claimed(self._epoch, f"s{self._epoch}"))

    def _group(self, wanted: Callable[[_LiveGroup], bool]) -> _LiveGroup | None:
        groups = [group for group in self._live.values() if wanted(group)]
        return self._random.choice(groups) if groups else None

    def _policy(self) -> str:
        return self._random.choice(sorted(self._steps))

    def _result(self, group_id: str, policy: str) -> r.GroupReady:
        draw = self._random
        count = draw.randint(1, 4)
        returns = tuple(draw.choice(_RETURNS) for _ in range(count))
        if draw.random() < 0.2:
            returns = returns[:1] * count
        turns = tuple(draw.randint(1, 9) for _ in range(count)) if draw.random() < 0.8 else ()
        sessions = tuple(f"s{number}" for number in range(count))
        older: dict[str, Any] = {"sessions": sessions, "policy": policy}
        if draw.random() < 0.85:
            return control.ready(group_id, returns=returns, turns=turns, **older)
        passed = draw.choice([None, draw.randint(0, count)])
        deviation = draw.choice([0.0, 0.3])
        return control.ready(group_id, passed=passed, reward_std=deviation, **older)
