"""The agents process on a real broker, with a scripted gateway."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count, islice
from pathlib import Path

import orjson
import pytest

from infra.kafka.producer import Producer
from infra.kafka.reader import Reader
from infra.kafka.topics import create_topics
from infra.settings import KafkaSettings
from producers.agents.harness.session import AgentSession
from producers.agents.runner import serve
from producers.agents.settings import AgentsSettings
from schemas.records import Task
from schemas.topics import TASKS
from tests.builders.records.tasks import task
from tests.integration.agents.scripted_gateway import ScriptedGateway, on_uvloop

GROUP = "agents"
LIMIT_S = 30
Payload = Mapping[str, object]

releases: list[asyncio.Event] = []
"""Agents that wait do so for the newest."""


async def instant(task: Payload, session: AgentSession) -> float:
    return 1.0


async def waiting(task: Payload, session: AgentSession) -> float:
    await releases[-1].wait()
    return 1.0


@pytest.fixture
def tasks(kafka: KafkaSettings) -> Callable[[int], None]:
    """Issue so many tasks of one group, in one partition."""
    create_topics(kafka, [TASKS])

    def issue(count: int) -> None:
        producer = Producer(kafka, "issuer")
        for sample in range(count):
            producer.send(TASKS.name, a_task(sample), key="run-1")
        producer.close()

    return issue


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
    kafka: KafkaSettings, agent: str, **section: object
) -> AsyncIterator[ScriptedGateway]:
    """Yield a running agents process; stop it in order at the end."""
    releases.append(asyncio.Event())
    stop = asyncio.Event()
    async with ScriptedGateway().serving() as gateway:
        served = asyncio.create_task(serve(settings(kafka, gateway.url, agent, **section), stop))
        try:
            yield gateway
        finally:
            stop.set()
            await served


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)


def committed(kafka: KafkaSettings) -> int:
    """Return the number of tasks that the consumer group has committed."""
    reader = Reader(kafka, "looking", group=GROUP)
    partitions = [(TASKS.name, number) for number in range(TASKS.partitions)]
    offsets = reader.committed(partitions)
    reader.close()
    return sum(offset for offset, _ in offsets.values() if offset > 0)


def opened(gateway: ScriptedGateway) -> list[object]:
    return [call.body["session_id"] for call in gateway.calls if call.path == "/sessions"]


def closed(gateway: ScriptedGateway) -> list[tuple[object, object]]:
    return [
        (call.body["status"], call.body["cause"])
        for call in gateway.calls
        if call.path.endswith("/close")
    ]


def test_each_task_becomes_a_session(kafka: KafkaSettings, tasks: Callable[[int], None]) -> None:
    async def main() -> ScriptedGateway:
        tasks(5)
        async with running(kafka, "instant") as gateway:
            await until(lambda: len(closed(gateway)) == 5)
        return gateway

    gateway = on_uvloop(main())
    assert sorted(map(str, opened(gateway))) == [f"run-1.{sample}.0" for sample in range(5)]
    assert set(closed(gateway)) == {("complete", "policy")}
    assert committed(kafka) == 5


def test_no_more_agents_run_than_allowed_and_no_task_is_committed_before_its_turn(
    kafka: KafkaSettings, tasks: Callable[[int], None]
) -> None:
    async def main() -> tuple[int, int]:
        tasks(5)
        async with running(kafka, "waiting", concurrency=2) as gateway:
            await until(lambda: len(opened(gateway)) == 2)
            before = await asyncio.to_thread(committed, kafka)
            releases[-1].set()
            await until(lambda: len(closed(gateway)) == 5)
        return before, len(gateway.calls)

    before, calls = on_uvloop(main())
    assert before == 2
    assert calls == 15


def test_agents_that_run_when_the_process_ends_are_closed_as_stopped_and_the_rest_is_left(
    kafka: KafkaSettings, tasks: Callable[[int], None]
) -> None:
    async def main() -> ScriptedGateway:
        tasks(3)
        async with running(kafka, "waiting", concurrency=2) as gateway:
            await until(lambda: len(opened(gateway)) == 2)
        return gateway

    assert closed(on_uvloop(main())) == [("aborted", "infrastructure")] * 2
    assert committed(kafka) == 2


def test_processes_come_and_go_and_every_task_is_run_once(
    kafka: KafkaSettings, tasks: Callable[[int], None]
) -> None:
    names = (f"run-{number}" for number in count())
    issued: list[str] = []

    def more() -> None:
        issued.extend(islice(names, 20))
        issue(kafka, issued[-20:])

    async def main() -> list[object]:
        tasks(0)
        async with running(kafka, "instant") as first:
            more()
            await until(lambda: len(closed(first)) > 0)
            async with running(kafka, "instant") as second:
                async with asyncio.timeout(LIMIT_S):
                    while not closed(second):
                        await asyncio.to_thread(more)
            more()
            await until(lambda: len(closed(first)) + len(closed(second)) == len(issued))
        return [*opened(first), *opened(second)]

    assert sorted(map(str, on_uvloop(main()))) == sorted(f"{name}.0.0" for name in issued)


def test_the_process_ends_in_order_when_asked(
    kafka: KafkaSettings, tasks: Callable[[int], None], tmp_path: Path
) -> None:
    (tmp_path / "my_agent.py").write_text("def run(task, session): return 0.5")
    tasks(1)

    async def main() -> int | None:
        async with ScriptedGateway().serving() as gateway:
            process = subprocess.Popen(
                [sys.executable, "-m", "producers.agents"],
                cwd=tmp_path,
                env={**os.environ, **_environment(kafka, gateway.url)},
            )
            await until(lambda: len(closed(gateway)) == 1)
            process.send_signal(signal.SIGTERM)
            return await asyncio.to_thread(process.wait, LIMIT_S)

    assert on_uvloop(main()) == 0


def test_a_wrong_setting_ends_the_process_with_its_name(kafka: KafkaSettings) -> None:
    environment = {**os.environ, "SEAMLESSFLOW_AGENTS__CONCURRENCY": "none"}
    done = subprocess.run(
        [sys.executable, "-m", "producers.agents"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "SEAMLESSFLOW_AGENTS__CONCURRENCY" in done.stderr


def _environment(kafka: KafkaSettings, url: str) -> Mapping[str, str]:
    return {
        "PYTHONPATH": str(Path.cwd()),
        "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SEAMLESSFLOW_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
        "SEAMLESSFLOW_AGENTS__CALLABLE": "my_agent:run",
        "SEAMLESSFLOW_AGENTS__GATEWAY_URL": url,
    }
