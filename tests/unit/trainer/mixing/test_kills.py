"""A hundred steps with stored sessions, whose trainer is killed at random moments."""

import random
from dataclasses import replace
from typing import Any

import orjson
import pytest

from seamlessflow.schemas.records import StepCommitted, Trajectory
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.mixing.pools import PoolRules
from seamlessflow.trainer.recovery.resume import Origin
from tests.builders.trainer.fed_dataloader import FedDataloader
from tests.builders.trainer.groups import RULES
from tests.builders.trainer.stored_sessions import MemoryTopics, mixing, recording
from tests.builders.trainer.trajectories import one_turn
from tests.seed import seed

STEPS = 100
NEW, STORED = 2, 3
"""Groups of a batch."""
USES = 10
RULES_OF_POOLS = replace(RULES, max_staleness=STEPS, pools={"own": None, "old": None})


class KilledRun:
    """Steps of a trainer that starts again from its newest checkpoint and from `control`."""

    def __init__(self, name: str, seed: int, **arguments: Any) -> None:
        self.source = random.Random(seed)
        self.name, self.arguments = name, arguments
        self.topic: list[Trajectory] = []
        """The run's topic, from the offset 0 on."""
        self.stored = recording(*[(1, 0)] * 20, task="t")
        self.commits: list[StepCommitted] = []
        self.checkpoint: tuple[int, bytes] = (0, b"{}")
        self.started = 0
        self.feed = self._feed()

    def sample(self, step: int) -> None:
        """Add the sessions of a step's new groups to the topic; some groups fail whole."""
        for number in range(NEW):
            name = f"g{step}{'ab'[number]}"
            won = self.source.random() < 0.5
            for sample in range(2):
                self.topic.append(
                    replace(
                        one_turn(f"{name}.{sample}.0", float(won and not sample), step),
                        group_id=name,
                        task_id="t",
                        sample=sample,
                        group_size=2,
                    )
                )

    def step(self, number: int) -> None:
        """Train a step; start again before that if the trainer was killed."""
        self.sample(number)
        if self.source.random() < 0.3:
            self.kill()
        self._read(number)
        batch = self.feed.train(number)
        self.commits.append(committed_by(self.feed))
        if self.source.random() < 0.2:
            kept = orjson.dumps(self.feed.loader.mixing.recorded())
            self.checkpoint = number + 1, kept
        assert isinstance(batch, Batch)

    def kill(self) -> None:
        """Start again, and execute the steps behind the checkpoint as they were recorded."""
        self.feed = self._feed()
        self.started += 1
        begin, _ = self.checkpoint
        for commit in self.commits[begin:]:
            self._read(commit.step)
            batch = self.feed.next(commit.step)
            assert isinstance(batch, Batch)
            assert batch.members() == commit.groups
            self.feed.loader.consumed(batch)

    def _feed(self) -> FedDataloader:
        rules = PoolRules(uses=USES, max_staleness=None, keep=1000)
        topics = MemoryTopics(old=list(self.stored))
        topics.topics["own"] = self.topic  # type: ignore[assignment]  # it goes on growing
        mixer = mixing(self.name, topics, rules, **self.arguments)
        begin, kept = self.checkpoint
        mixer.restore(orjson.loads(kept))
        origin = Origin(begin, begin, "a")
        feed = FedDataloader(*self.commits, rules=RULES_OF_POOLS, origin=origin, mixing=mixer)
        feed.control_state.steps_of |= {step: step for step in range(STEPS + 1)}
        self.read = begin * NEW * 2
        return feed

    def _read(self, step: int) -> None:
        """Let the dataloader read the topic to behind the sessions of a step."""
        for offset in range(self.read, (step + 1) * NEW * 2):
            self.feed.returned += self.feed.loader.add(self.topic[offset], 0, offset, now_ms=0)
        self.read = (step + 1) * NEW * 2


@pytest.mark.parametrize("drawn", [seed, 1, 2])
def test_each_step_has_exactly_the_groups_that_mix_asks_for(drawn: int) -> None:
    run = KilledRun("mix", drawn, foreign=STORED)
    for number in range(STEPS):
        run.step(number)
    assert run.started > 10, drawn
    kinds = [[bool(group.pool) for group in commit.groups] for commit in run.commits]
    # The pool of another log is used up before the end; the own one grows.
    assert kinds == [[False] * NEW + [True] * STORED] * STEPS, drawn
    names = [name for commit in run.commits for g in commit.groups for name in g.sessions]
    assert max(map(names.count, names)) <= USES, drawn


@pytest.mark.parametrize("drawn", [seed, 1, 2])
def test_each_failed_group_is_rescued_and_no_session_is_used_too_often(drawn: int) -> None:
    run = KilledRun("rescue", drawn)
    for number in range(STEPS):
        run.step(number)
    returns = {
        f"{session.group_id}": session.rewards[0].value
        for session in run.topic
        if session.rewards[0].value or session.sample == 0
    }
    for commit in run.commits:
        for group in commit.groups:
            assert bool(group.replaced) == (returns[group.group_id] == 0), (drawn, group)
    used = [each.by for commit in run.commits for g in commit.groups for each in g.replaced]
    before: dict[str, int] = {}
    for commit in run.commits:
        trained = {each.by: each.uses for g in commit.groups for each in g.replaced}
        for name, uses in trained.items():
            assert uses == before.get(name, 0), (drawn, name)
        for name in commit.trained_tokens or _trained(commit):
            before[name] = before.get(name, 0) + 1
    assert max(map(used.count, used)) <= USES, drawn


def committed_by(feed: FedDataloader) -> StepCommitted:
    """Return the commit of the newest step."""
    commit = feed.commits[-1]
    assert isinstance(commit, StepCommitted)
    return commit


def _trained(commit: StepCommitted) -> set[str]:
    """Return the sessions of a commit with trained tokens: all of groups whose returns differ."""
    names: set[str] = set()
    for group in commit.groups:
        out = {each.session_id for each in group.replaced}
        if not group.filtered:
            names |= {name for name in group.sessions if name not in out}
        names |= {each.by for each in group.replaced}
    return names
