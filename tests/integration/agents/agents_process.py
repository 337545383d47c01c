"""The agents process on a real broker, with a scripted gateway."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import orjson

from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.partitions import partition_of
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.producers.agents.harness.session import AgentSession
from seamlessflow.producers.agents.runner import serve
from seamlessflow.producers.agents.settings import AgentsSettings
from seamlessflow.schemas.records import Task
from seamlessflow.schemas.topics import TASKS
from tests.builders.own_topics import SMALL
from tests.builders.records.tasks import task
from tests.integration.agents.scripted_gateway import Answering, ScriptedGateway, accepting

PARTITION = partition_of("run-1", SMALL[TASKS.name].partitions)
LIMIT_S = 120
Payload = Mapping[str, object]

releases: list[asyncio.Event] = []
"""Agents that wait do so for the newest."""


async def instant(task: Payload, session: AgentSession) -> float:
    return 1.0


async def measuring(task: Payload, session: AgentSession) -> float:
    """Return the bytes of a task's text."""
    return float(len(str(task["text"]).encode()))


async def waiting(task: Payload, session: AgentSession) -> float:
    await releases[-1].wait()
    return 1.0


def _raise(task: Payload) -> float:
    raise (StopIteration, SystemExit, asyncio.CancelledError, KeyboardInterrupt)[task["n"]]  # type: ignore[call-overload]


def unruly(task: Payload, session: AgentSession) -> float:
    """Plain agent that raises, for each of its first tasks, what ends a loop or a wait."""
    return 1.0 if task["n"] == 4 else _raise(task)


async def unruly_task(task: Payload, session: AgentSession) -> float:
    """Agent that does so in a task of its own."""

    async def work() -> float:
        return _raise(task)

    return 1.0 if task["n"] == 4 else await asyncio.create_task(work())


def issue_samples(kafka: KafkaSettings, count: int, first: int = 0) -> None:
    """Issue so many tasks of one group, in one partition."""
    producer = Producer(kafka, "issuer")
    for sample in range(first, first + count):
        producer.send(TASKS.name, a_task(sample), key="run-1")
    producer.close()


def issue(kafka: KafkaSettings, groups: Sequence[str]) -> None:
    """Issue one task for each of these groups, over all partitions."""
    producer = Producer(kafka, "issuer")
    for name in groups:
        producer.send(TASKS.name, a_task(0, name), key=name)
    producer.close()


def a_task(sample: int, group: str = "run-1") -> Task:
    now = round(time.time() * 1000)
    return task(
        group_id=group,
        sample=sample,
        payload=orjson.dumps({"n": sample}),
        issued_at_ms=now,
        deadline_ms=now + 60_000,
    )


def settings(kafka: KafkaSettings, url: str, agent: str, **section: object) -> AgentsSettings:
    agents = {"callable": f"{__name__}:{agent}", "gateway_url": url, "drain_s": 0.1, **section}
    return AgentsSettings.model_validate({"kafka": kafka, "agents": agents})


@asynccontextmanager
async def running(
    kafka: KafkaSettings, agent: str, answering: Answering = accepting, **section: object
) -> AsyncIterator[ScriptedGateway]:
    """Yield a running agents process; stop it in order at the end."""
    releases.append(asyncio.Event())
    stop = asyncio.Event()
    async with ScriptedGateway(answering).serving() as gateway:
        served = asyncio.create_task(serve(settings(kafka, gateway.url, agent, **section), stop))
        try:
            yield gateway
        finally:
            stop.set()
            await served


async def until(condition: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.01)


def opened(gateway: ScriptedGateway) -> list[object]:
    return [call.body["session_id"] for call in gateway.calls if call.path == "/sessions"]


def closed(gateway: ScriptedGateway) -> list[tuple[object, object]]:
    return [
        (call.body["status"], call.body["cause"])
        for call in gateway.calls
        if call.path.endswith("/close")
    ]


def environment(kafka: KafkaSettings, url: str) -> Mapping[str, str]:
    """Return the environment of a process whose agent is `my_agent.py` of its directory."""
    return {
        **os.environ,
        "PYTHONPATH": str(Path.cwd()),
        "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SEAMLESSFLOW_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
        "SEAMLESSFLOW_AGENTS__CALLABLE": "my_agent:run",
        "SEAMLESSFLOW_AGENTS__GATEWAY_URL": url,
    }
