"""The reward worker: judges closed sessions, and sends their rewards to the manager.

A feed in a separate thread says which judgements are due and which are over. Each judgement is a
task in the event loop here. Its reward is an `AssignReward` whose id follows from session and
judge. So the manager records one reward for each, whatever happens to this process.
"""

import asyncio
import logging
import os
from dataclasses import replace
from functools import partial

from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.process import ready
from seamlessflow.infra.telemetry.instruments import Instruments, instruments
from seamlessflow.producers.agents.gateway_client.client import GatewayClient
from seamlessflow.producers.agents.harness.containment import contain_exits
from seamlessflow.recorded.judging.judges import judge_of
from seamlessflow.recorded.judging.request_feed import FeedCalls, RequestFeed
from seamlessflow.recorded.judging.requests import (
    DueJudgement,
    JudgementKey,
    Over,
    reward_commands,
)
from seamlessflow.recorded.judging.settings import RewardsSection, RewardWorkerSettings
from seamlessflow.recorded.judging.tasks import TaskPayloads
from seamlessflow.recorded.judging.tries import Tries
from seamlessflow.recorded.judging.verdict import JudgesWord, Unrewarded
from seamlessflow.recorded.judging.waits import JudgeWaits
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.topics import CONTROL, REQUESTS, SESSIONS, TASKS

_CALL_LIMIT_S = 10.0
"""Longest wait for a gateway's answer to a call that opens or closes a session."""
_LOOK_S = 5.0
"""Time between two checks of how long sessions wait."""
_log = logging.getLogger(__name__)


async def serve(settings: RewardWorkerSettings, stop: asyncio.Event) -> None:
    """Judge sessions until `stop` is set.

    Raises `FunctionUnusable` before it reads any session, and what `find_cluster` raises.
    """
    name = f"reward-worker-{os.getpid()}"
    rewards = settings.rewards
    with instruments(settings, "reward-worker", name, {SESSIONS.name: rewards.group}) as made:
        gateway = _gateway(rewards)
        judges = {
            judge: Tries(
                judge, judge_of(judge, section, made.metrics, gateway), section, made.metrics
            )
            for judge, section in rewards.judges.items()
        }
        contain_exits(asyncio.get_running_loop())
        await _serve(settings, judges, made, stop, name)
        gateway.disconnect()


def _gateway(rewards: RewardsSection) -> GatewayClient:
    """Return a client for judges that are the run's policies; it connects at its first call."""
    key = rewards.admin_key.get_secret_value()
    return GatewayClient(rewards.gateway_url, key, _CALL_LIMIT_S)


async def _serve(
    settings: RewardWorkerSettings,
    judges: dict[str, Tries],
    instruments: Instruments,
    stop: asyncio.Event,
    name: str,
) -> None:
    cluster = await asyncio.to_thread(
        find_cluster, settings.kafka, [SESSIONS, REQUESTS, TASKS, CONTROL], stop.is_set
    )
    loop = asyncio.get_running_loop()
    judgements = Judgements(judges, instruments, stop, settings.rewards.wait_s)

    def failed(error: BaseException) -> None:
        loop.call_soon_threadsafe(judgements.give_up, error)

    most_bytes = int(settings.rewards.tasks_mb * 1_000_000)
    tasks = TaskPayloads(
        settings.kafka, cluster.partitions[TASKS.name], most_bytes, stop.is_set, failed
    )
    judgements.begin(tasks, Producer(settings.kafka, "reward-worker"))
    calls = FeedCalls(
        start=lambda judgement: loop.call_soon_threadsafe(judgements.start, judgement),
        over=lambda over: loop.call_soon_threadsafe(judgements.end, over),
        failed=failed,
    )
    feed = RequestFeed(settings.kafka, settings.rewards.group, calls, instruments.metrics)
    feed.begin()
    ready(_log, "judging sessions: %s", ", ".join(sorted(judges)))
    reporting = asyncio.create_task(judgements.report_waits(name))
    await stop.wait()
    reporting.cancel()
    await asyncio.to_thread(feed.end)  # joins the feed's thread: not in the event loop
    await judgements.close()
    await tasks.close()
    if judgements.failure is not None:
        raise judgements.failure


class Judgements:
    """Judgements under way. Used from the event loop."""

    def __init__(
        self,
        judges: dict[str, Tries],
        instruments: Instruments,
        stop: asyncio.Event,
        wait_s: float,
    ) -> None:
        self._judges = judges
        self._waits = JudgeWaits(wait_s)
        self._waiting = instruments.metrics.gauge("seamlessflow_judges_waiting")
        self._stop = stop
        self._tasks: dict[JudgementKey, asyncio.Task[None]] = {}
        self._late: set[JudgementKey] = set()
        """Keys of judgements whose session has ended."""
        self.failure: BaseException | None = None
        """Error that ends the process, or None."""

    def begin(self, tasks: TaskPayloads, producer: Producer) -> None:
        """Take the parts that judgements read and write with."""
        self._payloads = tasks
        self._producer = producer

    def give_up(self, error: BaseException) -> None:
        """End the process with this error."""
        self.failure = self.failure or error
        self._stop.set()

    def start(self, judgement: DueJudgement) -> None:
        """Begin a judgement."""
        key = judgement.key
        if key in self._tasks:
            return
        task = asyncio.get_running_loop().create_task(self._judge(judgement))
        self._tasks[key] = task
        self._waits.begin(key, now_ms())
        self._waiting.set(len(self._tasks))
        task.add_done_callback(partial(self._done, key))

    async def report_waits(self, process: str) -> None:
        """Until cancelled, write a report for each judge that sessions wait for too long."""
        try:
            while True:
                await asyncio.sleep(_LOOK_S)
                for report in self._waits.overdue(process, now_ms()):
                    _log.warning("%s: %s", report.what, report.detail)
                    self._producer.send(CONTROL.name, report)
        except Exception as error:  # the process ends with it
            self.give_up(error)

    def end(self, over: Over) -> None:
        """End judgements that are over; late ones go on to the end of their try."""
        for key in over.keys:
            if key not in self._tasks:
                continue
            if over.ended:
                self._late.add(key)
                self._waits.end(key)
            else:
                self._tasks[key].cancel()

    async def close(self) -> None:
        """Give up all judgements, and wait until all rewards are on the log."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for tries in self._judges.values():
            await tries.close()
        await asyncio.to_thread(self._producer.close)

    async def _judge(self, judgement: DueJudgement) -> None:
        key = judgement.key
        verdict = await self._verdict(judgement)
        if isinstance(verdict, Unrewarded) and key in self._late:
            return
        for command in reward_commands(key, verdict, now_ms(), judgement.deadline_ms):
            self._producer.send(REQUESTS.name, command, key=session_name(key.session_id))

    async def _verdict(self, judgement: DueJudgement) -> JudgesWord:
        key = judgement.key
        tries = self._judges.get(key.judge)
        if tries is None:
            return Unrewarded("the run has no such judge any more")
        payload = await self._payloads.payload(judgement.session.group_id)
        task = None if payload is None else read_json(payload)
        session = replace(judgement.session, task=task)
        return await tries.verdict(session, judgement.deadline_ms, lambda: key not in self._late)

    def _done(self, key: JudgementKey, task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        self._waits.end(key)
        self._late.discard(key)
        self._waiting.set(len(self._tasks))
        if not task.cancelled() and (error := task.exception()) is not None:
            self.give_up(error)
