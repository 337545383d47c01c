"""Random histories of explorations, in which schedulers die between any two of their records.

Each exploration with different returns is sampled again exactly once, and no other one.
"""

import random
from dataclasses import replace

import pytest

from seamlessflow.schemas import records as r
from tests.builders.records import control
from tests.builders.scheduler.exploring import BEST, SAMPLES, WORST, ExploringRun, ready_with
from tests.seed import seed

HISTORIES = 60
EVENTS = 60


class History:
    """A run whose schedulers die, whose trainer answers, and whose log is checked at its end."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(f"{seed} {number}")
        self.run = ExploringRun()
        self.epoch = 1
        self.returns: dict[str, tuple[float, ...]] = {}
        """Returns of each ready exploration."""

    def extend(self, count: int) -> None:
        for _ in range(count):
            event = self.random.choice([self._admit, self._admit, self._die, self._end, self._end])
            event()

    def finish(self) -> None:
        """Go on without deaths until no exploration waits."""
        self.run.happen(control.published(1))  # groups that were dropped are replaced again
        while any(group.ready for group in self.run.state.first.ledger.explorations.values()):
            for group in [*self.run.state.first.ledger.training]:
                self.run.happen(control.ready(group), control.consumed(group))
            assert self.run.admit(), f"seed {seed}"

    def accepted(self) -> list[r.GroupAdmitted]:
        """Return the admissions that count: those of the newest claim before them."""
        epoch, counted = 0, []
        for record in self.run.log:
            if isinstance(record, r.SchedulerClaimed):
                epoch = record.epoch
            elif isinstance(record, r.GroupAdmitted) and record.epoch == epoch:
                counted.append(record)
        return counted

    def _admit(self) -> None:
        self.run.admit()

    def _die(self) -> None:
        """Write some of the decisions; the next scheduler decides anew, and others come late."""
        decided = self.run.decided()
        written = self.random.randint(0, len(decided))
        self.run.happen(*decided[:written])
        before = self.run.state.first.ledger
        self.epoch += 1
        self.run.take_over(self.epoch)
        assert self.run.state.first.ledger == before, f"seed {seed}"
        self.run.happen(*decided[written:])

    def _end(self) -> None:
        ledger = self.run.state.first.ledger
        running = [name for name, group in ledger.groups.items() if not group.ready]
        if not running:
            return
        group = self.random.choice(running)
        if group in ledger.training:
            self.run.happen(control.ready(group), control.consumed(group))
        elif self.random.random() < 0.1:
            self.run.happen(control.dropped(group, self.random.choice(["failed", "expired"])))
        else:
            self.returns[group] = self._returns()
            self.run.happen(ready_with(group, self.returns[group]))

    def _returns(self) -> tuple[float, ...]:
        count = self.random.randint(1, SAMPLES)
        values = self.random.choice([(0.0,), (0.0, 1.0), (0.0, 0.5, 1.0)])
        return tuple(self.random.choice(values) for _ in range(count))


def chosen(returns: tuple[float, ...]) -> list[float]:
    """Return the returns that are sampled again, by the rule's words."""
    ascending = sorted(returns)
    if len(ascending) <= BEST + WORST:
        return ascending
    return ascending[:WORST] + ascending[-BEST:]


@pytest.mark.parametrize("number", range(HISTORIES))
def test_each_exploration_is_sampled_again_once_whichever_scheduler_dies(number: int) -> None:
    history = History(number)
    history.extend(EVENTS)
    history.finish()
    again = [group for group in history.accepted() if group.explored]
    mixed = [group for group, values in history.returns.items() if len({*values}) > 1]
    assert sorted(group.explored for group in again) == sorted(mixed), f"seed {seed}"
    for group in again:
        returns = history.returns[group.explored]
        assert sorted(each.value for each in group.seeds) == chosen(returns), f"seed {seed}"
        assert len({each.session_id for each in group.seeds}) == len(group.seeds)
        explored = ready_with(group.explored, returns)
        values = dict(zip(explored.sessions, returns, strict=True))
        assert all(values[each.session_id] == each.value for each in group.seeds)


def test_an_admission_of_a_scheduler_that_was_replaced_samples_nothing_again() -> None:
    run = ExploringRun()
    (first, *_) = run.admit()
    run.happen(ready_with(first.group_id, (0.0, 1.0)))
    (late, *_) = run.decided()
    run.take_over(2)
    run.happen(late)
    (again, *_) = run.decided()
    assert again == replace(late, epoch=2)
