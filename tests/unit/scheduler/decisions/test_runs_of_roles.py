"""Whole runs of several roles by drawn histories: episodes fail, groups drop, schedulers end.

Sessions and trainers are played here. The session of a trained role counts, fails with its episode,
or fails alone since its process died between two closes.
"""

import random
from collections import Counter, defaultdict
from functools import reduce

import pytest

from seamlessflow.scheduler.decisions import pacing
from seamlessflow.scheduler.decisions.decide import View
from seamlessflow.scheduler.decisions.episodes import all_groups
from seamlessflow.scheduler.settings import RunSection
from seamlessflow.scheduler.state import state
from seamlessflow.scheduler.state.state import State, from_json, to_json
from seamlessflow.scheduler.tasks.mixture import TaskSets
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control
from tests.builders.scheduler.inputs import scheduler_settings, task_source
from tests.seed import seed

TICK_MS = 5_000
LIMIT = 3_000
STEPS = 6
SHARED = {"group_size": 3, "steps": STEPS}
RUNS = {
    "self-play": RunSection(
        policy="a", roles={"one": "a", "two": "a"}, groups_per_step=2, lag=0, **SHARED
    ),
    "rivals": RunSection(
        policy="a",
        policies=("a", "b"),
        roles={"hider": "b", "seeker": "a"},
        groups_per_step=3,
        lag=1,
        **SHARED,
    ),
    "two against one": RunSection(
        policy="a",
        policies=("a", "b"),
        roles={"left": "b", "right": "b", "alone": "a"},
        groups_per_step=2,
        lag=0,
        **SHARED,
    ),
    "opponent": RunSection(
        policy="a",
        policies=("a",),
        frozen={"rival": None},
        roles={"we": "a", "they": "rival"},
        groups_per_step=2,
        lag=1,
        **SHARED,
    ),
}


class RunOfRoles:
    """A run whose agents and trainers are played here."""

    def __init__(self, run: RunSection, source: random.Random) -> None:
        self.settings = scheduler_settings(run)
        self.sets = TaskSets(task_source(16))
        self.state = State.of_run(run.all_policies, run.frozen) if run.policies else State()
        self.view = View()
        self.now_ms = 0
        self.epoch = 0
        self.log: list[Record] = []
        self.issued: list[tuple[str, int, int]] = []
        self.done: defaultdict[str, set[int]] = defaultdict(set)
        self.spent: defaultdict[str, set[int]] = defaultdict(set)
        self.ready: defaultdict[str, list[str]] = defaultdict(list)
        self.over: set[str] = set()
        self.steps: Counter[str] = Counter()
        self.stepped: list[tuple[str, str]] = []
        self._run = run
        self._random = source
        self.take_over()
        for number, policy in enumerate(run.served_policies):
            worker = f"w{number}"
            self.put(
                control.joined(worker),
                control.published(0, policy=policy),
                control.assigned(worker, "rollout", number, slot=number, policy=policy),
                control.acquired(worker, "rollout", number, slot=number, policy=policy),
            )

    @property
    def ended(self) -> bool:
        return all(self.steps[policy] == STEPS for policy in self._run.all_policies)

    def put(self, *records: Record) -> None:
        self.log += records
        self.state = reduce(state.apply, records, self.state)

    def take_over(self) -> None:
        """Begin with another scheduler, from the snapshot of the one before."""
        self.epoch += 1
        self.state = from_json(to_json(self.state)) or State()
        self.view = View()
        self.put(control.claimed(self.epoch, f"s{self.epoch}"))

    def tick(self) -> None:
        self.now_ms += TICK_MS
        draws = self.sets.training
        assert draws is not None
        admitted = pacing.admissions(self.state, self.settings, draws, self.now_ms)
        written = self._random.randint(0, len(admitted)) if self._falls(0.1) else len(admitted)
        self.put(*admitted[:written])
        if written < len(admitted) or self._falls(0.05):
            self.take_over()
            return
        ledger = all_groups(self.state, self.state.first.ledger, self.settings)
        tasks = pacing.tasks(ledger, self.view.issued, self.settings, self.sets, self.now_ms)
        self.view = View(self.state, issued=self.view.issued).with_issued(tasks)
        for task in tasks:
            self._play(task)
        for policy in self._run.all_policies:
            self._train(policy)

    def _play(self, task: r.Task) -> None:
        place = (task.group_id, task.sample, task.attempt)
        if place in self.issued:  # by the scheduler before: its sessions exist
            return
        self.issued.append(place)
        whole = self._falls(0.2)
        for role in task.roles:
            if role.trained and role.group_id not in self.over:
                self._close(role, task, failed=whole or self._falls(0.1))

    def _close(self, role: r.EpisodeRole, task: r.Task, failed: bool) -> None:
        name = role.group_id
        if not failed:
            self.done[name].add(task.sample)
        elif task.sample not in self.done[name]:
            if task.attempt + 1 >= self.settings.pacing.max_attempts:
                self.spent[name].add(task.sample)
            self.put(
                control.sample_failed(
                    name, task.sample, task.attempt, policy=role.policy, at_ms=self.now_ms
                )
            )
        done, spent = self.done[name], self.spent[name] - self.done[name]
        if len(done | spent) < task.group_size:
            return
        self.over.add(name)
        if spent or self._falls(0.2):
            reason = "too_few" if done else "failed"
            self.put(control.dropped(name, reason, policy=role.policy, at_ms=self.now_ms))
        else:
            self.put(control.ready(name, policy=role.policy, at_ms=self.now_ms))
            self.ready[role.policy].append(name)

    def _train(self, policy: str) -> None:
        count = self._run.groups_per_step
        if len(self.ready[policy]) < count or self.steps[policy] == STEPS:
            return
        groups, self.ready[policy] = self.ready[policy][:count], self.ready[policy][count:]
        self.stepped += [(policy, name) for name in groups]
        step = self.steps[policy]
        self.steps[policy] += 1
        self.put(
            control.batch_ready(step, policy=policy, at_ms=self.now_ms),
            control.committed(step, groups, policy=policy, at_ms=self.now_ms),
            control.published(step + 1, policy=policy, at_ms=self.now_ms),
            control.completed(step, policy=policy, at_ms=self.now_ms),
        )
        if self.steps[policy] == STEPS:
            self.put(control.finished(STEPS, policy=policy))

    def _falls(self, chance: float) -> bool:
        return self._random.random() < chance


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("number", range(5))
def test_every_policy_makes_its_steps_whatever_fails(name: str, number: int) -> None:
    print(f"seed {seed}, history {number}")
    run = RunOfRoles(RUNS[name], random.Random(f"{seed} {name} {number}"))
    ticks = 0
    while not run.ended:
        ticks += 1
        assert ticks < LIMIT, f"no further step: {run.steps}"
        run.tick()
    check(run, RUNS[name])


def check(run: RunOfRoles, section: RunSection) -> None:
    """Each group is admitted once, for its role's policy, and a sample's attempts rise together."""
    admitted = [record for record in run.log if isinstance(record, r.GroupAdmitted)]
    names = [group.group_id for group in admitted]
    assert len(names) == len(set(names))
    whole = {role.group_id for group in admitted for role in group.roles if role.trained}
    assert whole - set(names) == set() or run.state.first.ledger.admitting is not None
    policies = {group.group_id: section.roles[group.role] for group in admitted}
    assert all(policies[group] == policy for policy, group in run.stepped)
    firsts = {group.roles[0].group_id for group in admitted}
    assert {group for group, _, _ in run.issued} <= firsts
    attempts: dict[tuple[str, int], int] = {}
    for group, sample, attempt in run.issued:
        assert attempt > attempts.get((group, sample), -1)
        attempts[group, sample] = attempt
