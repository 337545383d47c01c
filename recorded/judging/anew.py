"""Recorded sessions judged anew, by another judge than when they were recorded.

The log stays as it is: the outcome is a further reward for each session. Called by `seamlessflow
judge`.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from seamlessflow.consumers.trajectories.sessions.assemble import assembled
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.blobs import largest_trajectory
from seamlessflow.infra.clock import Stopping, never, now_ms
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.infra.worker.judged_rewards import JUDGE
from seamlessflow.producers.agents.harness.containment import contain_exits
from seamlessflow.recorded.export.exporting import recorded_weights
from seamlessflow.recorded.judging.comparison import JudgedAnew
from seamlessflow.recorded.judging.judged_session import judged_session
from seamlessflow.recorded.judging.judges import judge_of
from seamlessflow.recorded.judging.settings import JudgeSection
from seamlessflow.recorded.judging.tasks import KeptTasks
from seamlessflow.recorded.judging.tries import Tries
from seamlessflow.recorded.judging.verdict import JudgesWord, Rewarded
from seamlessflow.recorded.select.reading import Show, ended_sessions, partition_bounds
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.recorded.select.selection import SessionSelection
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.records import Reward, Task, Trajectory
from seamlessflow.schemas.topics import TASKS
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.credit.returns import RewardWeights, session_return

_AT_ONCE = 256
"""Sessions that are judged together, as many at once as the judge's `concurrency` says."""


@dataclass(frozen=True, slots=True)
class NewJudge:
    """A judge for recorded sessions."""

    name: str
    """Name of its reward, which replaces a recorded one with the same name."""
    settings: JudgeSection
    wait_s: float
    """Seconds for which an outage is waited out."""
    tasks_mb: float


def judge_anew(
    kafka: KafkaSettings,
    selection: SessionSelection,
    judge: NewJudge,
    skipped: Skipped,
    show: Show,
    stopping: Stopping = never,
) -> Iterator[JudgedAnew]:
    """Yield the chosen training sessions that an agent finished, with their new reward.

    Raises `FunctionUnusable`, and what `ended_sessions` raises.
    """
    weights = recorded_weights(kafka, skipped, stopping)
    tasks = KeptTasks(int(judge.tasks_mb * 1_000_000))
    for item in read_topic(kafka, TASKS, skipped, stopping=stopping):
        if isinstance(item.record, Task):
            tasks.add(item.record)
    largest = largest_trajectory(kafka)
    metrics = Metrics()
    function = judge_of(judge.name, judge.settings, metrics)
    with asyncio.Runner() as runner:
        contain_exits(runner.get_loop())
        tries = Tries(judge.name, function, judge.settings, metrics)
        for batch in _batches(kafka, selection, skipped, show, stopping):
            words = runner.run(_words(batch, tries, tasks, judge.wait_s))
            for session, word in zip(batch, words, strict=True):
                made, _ = assembled(session, 0, largest)
                of_policy = weights.get(made.policy, ONE_REWARD)
                yield _outcome(made, judge.name, word, of_policy)
        runner.run(tries.close())


def _batches(
    kafka: KafkaSettings,
    selection: SessionSelection,
    skipped: Skipped,
    show: Show,
    stopping: Stopping,
) -> Iterator[list[Session]]:
    bounds = partition_bounds(kafka, selection, stopping)
    total = sum(end - start for start, end in bounds.values())
    batch: list[Session] = []
    for number, part in bounds.items():
        fold = Refold(LoggedPartition(number), selection)

        def count(events: int) -> None:
            show(events, total)

        for session in ended_sessions(kafka, fold, part, skipped, count, stopping):
            if _was_finished(session, number, selection):
                batch.append(session)
            if len(batch) >= _AT_ONCE:
                yield batch
                batch = []
    if batch:
        yield batch


def _was_finished(session: Session, number: int, selection: SessionSelection) -> bool:
    closed = session.closed
    if closed is None or session.failed or session.opened.purpose != "train":
        return False
    finished = closed.status in ("complete", "truncated") and closed.cause == "policy"
    return finished and selection.chooses(assembled(session, number)[0])


async def _words(
    sessions: Sequence[Session], tries: Tries, tasks: KeptTasks, wait_s: float
) -> list[JudgesWord]:
    deadline_ms = now_ms() + int(1000 * wait_s)

    async def word(session: Session) -> JudgesWord:
        judged = judged_session(session)
        payload = tasks.get(judged.group_id)
        task = None if payload is None else read_json(payload)
        return await tries.verdict(replace(judged, task=task), deadline_ms)

    return list(await asyncio.gather(*map(word, sessions)))


def _outcome(made: Trajectory, name: str, word: JudgesWord, weights: RewardWeights) -> JudgedAnew:
    value = word.value if isinstance(word, Rewarded) else None
    return JudgedAnew(
        session_id=made.session_id,
        group_id=made.group_id,
        value=value,
        reason="" if isinstance(word, Rewarded) else word.reason,
        before=session_return(made, weights) if made.cause == "policy" else None,
        after=None if value is None else session_return(_with(made, name, value), weights),
    )


def _with(made: Trajectory, name: str, value: float) -> Trajectory:
    """Return the session with a reward from its judge, which replaces one with the same name."""
    kept = (reward for reward in made.rewards if (reward.scope, reward.name) != ("session", name))
    rewards = (*kept, Reward(name=name, value=value, source=JUDGE))
    status = "complete" if made.status == "unrewarded" else made.status
    return replace(made, rewards=rewards, status=status)
