"""Reward workers and managers that come and go: each session has one reward of each judge."""

from collections.abc import Sequence

import hypothesis
import pytest
from hypothesis import strategies as st

from seamlessflow.consumers.trajectories.decisions.context import JudgeTerms
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.recorded.judging.requests import (
    JudgementKey,
    RequestedPartition,
    reward_commands,
)
from seamlessflow.recorded.judging.verdict import JudgesWord, Rewarded, Unrewarded
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, Trajectory
from seamlessflow.schemas.topics import SESSIONS
from tests.builders.records.commands import close_session, open_session
from tests.properties.choices import Choices
from tests.properties.managed_partition import ManagedPartition
from tests.properties.simulation.managers import SteppedManager, read_back
from tests.seed import seed

JUDGES = ("brief", "kind")
WAIT_MS = 20_000
STEP_MS = 4_000
CASES = 60
MOST_READS = 200


class JudgedManager(SteppedManager):
    """A manager of a run with judges."""

    judges = JudgeTerms(JUDGES, WAIT_MS)


class SteppedWorker:
    """A reward worker without threads: a test decides when it reads, and how judges answer."""

    def __init__(self, committed: tuple[int, int]) -> None:
        offset, epoch = committed
        self.requested = RequestedPartition(LoggedPartition(0, position=offset, epoch=epoch))
        self.asked: list[JudgementKey] = []

    def read(self, partition: ManagedPartition) -> None:
        """Read all that is on the log, and ask for what is due."""
        log = partition.topics.records[SESSIONS.name, 0]
        for received in log[self.requested.log.position :]:
            over = self.requested.apply(received.record, received.offset)
            self.asked = [key for key in self.asked if key not in over.keys or over.ended]
        self.asked += [judgement.key for judgement in self.requested.take_due()]


class Surroundings:
    """A partition, its manager, and the reward workers that own it or believe so."""

    def __init__(self, renderer: Renderer, choices: Choices) -> None:
        self._choices = choices
        self.partition = ManagedPartition(renderer, JudgedManager)
        self.workers = [SteppedWorker((0, -1))]
        self._committed = (0, -1)
        self.sessions = 0

    def step(self) -> None:
        """Do what the next byte says; the first is what happens at the end of the bytes."""
        acts = (self._judge, self._judge, self._close, self._close, self._replace, self._join)
        others = (self._take_over, self._wait, self._wait, self._commit, self._repeat)
        self._choices.pick((*acts, *others))()
        self.partition.settle()

    def finish(self) -> None:
        """Let the last worker judge all that is due, then all deadlines pass."""
        self._replace()
        for _ in range(4 * self.sessions + 4):
            self._judge()
            self.partition.settle()
        # A longer step is an outage to the manager, behind which no deadline passes for a while.
        for _ in range(4 * WAIT_MS // STEP_MS):
            self.partition.now_ms += STEP_MS
            self.partition.ask()  # reads on what a successor has not read yet
            self.partition.settle(3)

    def _close(self) -> None:
        name = f"s{self.sessions}"
        self.sessions += 1
        lasting = {"expires_at_ms": 10**12, "max_age_ms": 10**9, "max_idle_ms": 10**9}
        opening = open_session(session_id=name, command_id=f"open {name}", **lasting)
        closing = close_session(session_id=name, command_id=f"close {name}", expires_at_ms=10**12)
        self.partition.ask(opening)
        self.partition.settle()
        self.partition.ask(closing)

    def _judge(self) -> None:
        worker = self._choices.pick(self.workers[::-1])
        worker.read(self.partition)
        if worker.asked:
            key = worker.asked.pop(self._choices.below(len(worker.asked)))
            self._answer(key)

    def _repeat(self) -> None:
        """Judge a session that was closed, whatever became of it, as a worker that lagged does."""
        if self.sessions:
            name = f"s{self._choices.below(self.sessions)}"
            self._answer(JudgementKey(name, self._choices.pick(JUDGES)))

    def _answer(self, key: JudgementKey) -> None:
        verdict: JudgesWord = Rewarded(float(self._choices.below(3)))
        if self._choices.one_in(6):
            verdict = Unrewarded("prose")
        now_ms = self.partition.now_ms
        self.partition.ask(*reward_commands(key, verdict, now_ms, now_ms + 10**9))

    def _replace(self) -> None:
        """Kill all workers; another begins where they committed."""
        self.workers = [SteppedWorker(self._committed)]

    def _join(self) -> None:
        """Begin another worker; the ones before do not know yet that they lost the partition."""
        self.workers = [*self.workers[-1:], SteppedWorker(self._committed)]

    def _commit(self) -> None:
        worker = self.workers[-1]
        worker.read(self.partition)
        self._committed = max(self._committed, worker.requested.rebuild_from)

    def _take_over(self) -> None:
        self.partition.manager.sending.flush()
        made = self.partition.begun()
        made.assigned(0)
        for _ in range(MOST_READS):
            if not made.owns(0):
                read_back(made)
        assert made.owns(0)
        self.partition.manager = made
        self.partition.ask()

    def _wait(self) -> None:
        self.partition.now_ms += self._choices.pick((1_000, WAIT_MS))


def counted(events: Sequence[Record], session: str) -> dict[str, r.RewardAssigned]:
    """Return the first word of each judge about a session, as far as it came before its end."""
    words: dict[str, r.RewardAssigned] = {}
    for event in events:
        if isinstance(event, r.SessionFinalized) and event.session_id == session:
            break
        if isinstance(event, r.RewardAssigned) and event.session_id == session:
            words.setdefault(event.reward.name, event)
    return words


def check(made: Trajectory, words: dict[str, r.RewardAssigned]) -> None:
    values = {name: word.reward.value for name, word in words.items() if not word.failure}
    rewarded = {reward.name: reward.value for reward in made.rewards}
    if values.keys() == set(JUDGES):
        assert (made.status, made.cause, rewarded) == ("complete", "policy", values)
    else:
        assert (made.status, made.cause) == ("unrewarded", "judge")
        assert rewarded == values


@hypothesis.seed(seed)
@hypothesis.settings(max_examples=CASES, deadline=None, database=None, print_blob=True)
@hypothesis.given(data=st.binary(min_size=30, max_size=150))
def test_each_session_ends_once_with_the_first_word_of_each_judge(
    data: bytes, renderers: Sequence[Renderer]
) -> None:
    choices = Choices(data)
    around = Surroundings(renderers[0], choices)
    while choices.left:
        around.step()
    around.finish()

    events = around.partition.events(Record)
    made = {record.session_id: record for record in around.partition.commit()}
    assert len(made) == around.sessions == len(around.partition.commit())
    for session, trajectory in made.items():
        check(trajectory, counted(events, session))
        named = [
            (event.session_id, event.reward.name)
            for event in events
            if isinstance(event, r.RewardAssigned) and event.session_id == session
        ]
        assert len(set(named)) == len(named), "a judge's word is on the log twice"


@pytest.mark.parametrize("kills", range(1, 4))
def test_without_an_outage_each_session_is_rewarded_however_often_workers_are_killed(
    kills: int, renderers: Sequence[Renderer]
) -> None:
    around = Surroundings(renderers[0], Choices(b""))
    for _ in range(6):
        around._close()
        around.partition.settle()
        for _ in range(kills):
            around._replace()
            around._judge()
            around.partition.settle()
    around.finish()

    made = around.partition.commit()
    assert len(made) == 6
    assert {record.cause for record in made} == {"policy"}, f"seed {seed}"
