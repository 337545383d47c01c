"""The agents process on a real broker, with a scripted gateway."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import orjson
import pytest

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import ProgressStalled
from seamlessflow.schemas.topics import CONTROL, FLEET, TASKS
from tests.builders.garbage import append_newer, buried, litter
from tests.builders.own_topics import small
from tests.integration.agents import agents_process
from tests.integration.agents.agents_process import (
    LIMIT_S,
    PARTITION,
    a_task,
    closed,
    environment,
    issue,
    opened,
    releases,
    running,
    until,
)
from tests.integration.agents.group import begun, committed
from tests.integration.agents.scripted_gateway import ScriptedGateway, on_uvloop

WAITS_BUT_THE_FIRST = """
async def run(task, session):
    await asyncio.sleep(0 if task["n"] == 0 else 600)
    return 1.0
"""
NEVER_RETURNS_AT_FIRST = """
def run(task, session):
    if task["n"] < 2:
        threading.Event().wait()
    return 1.0
"""


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


def test_a_task_of_5_mb_with_an_odd_id_is_played(kafka: KafkaSettings) -> None:
    odd = "new\nline 🙂" + "x" * 1_000
    payload = orjson.dumps({"id": odd, "text": "é" * 2_500_000})
    create_topics(kafka, small(TASKS, FLEET))
    producer = Producer(kafka, "issuer")
    producer.send(TASKS.name, replace(a_task(0), task_id=odd, payload=payload), key="run-1")
    producer.close()

    async def main() -> ScriptedGateway:
        async with running(kafka, "measuring") as gateway:
            await until(lambda: len(closed(gateway)) == 1)
        return gateway

    gateway = on_uvloop(main())
    opening, *_, closing = gateway.calls
    assert opening.body["task_id"] == odd
    assert closing.body["status"] == "complete"
    rewards = [call.body["value"] for call in gateway.calls if call.path.endswith("/reward")]
    assert rewards == [5_000_000.0]


@pytest.mark.parametrize("agent", ["unruly", "unruly_task"])
def test_whatever_an_agent_raises_its_place_is_free_again_and_other_sessions_go_on(
    kafka: KafkaSettings, tasks: Callable[[int], None], agent: str
) -> None:
    async def main() -> ScriptedGateway:
        tasks(5)
        async with running(kafka, agent, concurrency=1) as gateway:
            await until(lambda: len(closed(gateway)) == 5)
        return gateway

    gateway = on_uvloop(main())
    assert closed(gateway) == [("aborted", "environment")] * 4 + [("complete", "policy")]
    assert committed(kafka) == 5


def test_no_more_agents_run_than_allowed_and_no_task_is_committed_before_its_turn(
    kafka: KafkaSettings, tasks: Callable[[int], None]
) -> None:
    async def main() -> tuple[int, int]:
        tasks(5)
        async with running(kafka, "waiting", concurrency=2) as gateway:
            await until(lambda: len(opened(gateway)) == 2)
            before = await asyncio.to_thread(begun, kafka)
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


def test_agents_that_never_return_hold_no_other_up_are_reported_and_replaced_in_the_end(
    kafka: KafkaSettings, tasks: Callable[[int], None], tmp_path: Path
) -> None:
    """Holds invariant I8."""
    (tmp_path / "my_agent.py").write_text("import threading\n\n" + NEVER_RETURNS_AT_FIRST)
    create_topics(kafka, [CONTROL])
    tasks(4)

    async def main() -> tuple[ScriptedGateway, int | None]:
        async with ScriptedGateway().serving() as gateway:
            limits = {"CONCURRENCY": "2", "TIME_LIMIT_S": "1"}
            added = {f"SEAMLESSFLOW_AGENTS__{name}": limit for name, limit in limits.items()}
            process = subprocess.Popen(
                [sys.executable, "-m", "seamlessflow.producers.agents"],
                cwd=tmp_path,
                env={**environment(kafka, gateway.url), **added},
            )
            await until(lambda: len(closed(gateway)) == 4)
            return gateway, await asyncio.to_thread(process.wait, LIMIT_S)

    gateway, status = on_uvloop(main())
    assert sorted(closed(gateway)) == [("complete", "policy")] * 2 + [("timeout", "policy")] * 2
    assert status == ExitStatus.PASSING
    records = [item.record for item in read_topic(kafka, CONTROL, Skipped())]
    assert all(isinstance(record, ProgressStalled) and record.what == "agent" for record in records)
    assert sorted(
        record.detail.split()[3] for record in records if isinstance(record, ProgressStalled)
    ) == [
        "run-1.0.0",
        "run-1.1.0",
    ]


def test_the_process_ends_in_order_when_asked(
    kafka: KafkaSettings, tasks: Callable[[int], None], tmp_path: Path
) -> None:
    (tmp_path / "my_agent.py").write_text("def run(task, session): return 0.5")
    tasks(1)

    async def main() -> int | None:
        async with ScriptedGateway().serving() as gateway:
            process = subprocess.Popen(
                [sys.executable, "-m", "seamlessflow.producers.agents"],
                cwd=tmp_path,
                env=environment(kafka, gateway.url),
            )
            await until(lambda: len(closed(gateway)) == 1)
            process.send_signal(signal.SIGTERM)
            return await asyncio.to_thread(process.wait, LIMIT_S)

    assert on_uvloop(main()) == 0


def test_the_sessions_of_a_process_that_was_killed_are_closed_and_its_other_tasks_are_run(
    kafka: KafkaSettings, tasks: Callable[[int], None], tmp_path: Path
) -> None:
    (tmp_path / "my_agent.py").write_text("import asyncio\n\n" + WAITS_BUT_THE_FIRST)
    tasks(4)

    async def main() -> tuple[ScriptedGateway, ScriptedGateway]:
        async with ScriptedGateway().serving() as first:
            of_first = environment(kafka, first.url)
            command = [sys.executable, "-m", "seamlessflow.producers.agents"]
            limit = {"SEAMLESSFLOW_AGENTS__CONCURRENCY": "2"}
            process = subprocess.Popen(command, cwd=tmp_path, env={**of_first, **limit})
            await until(lambda: len(opened(first)) == 3)
            process.kill()
            process.wait(LIMIT_S)
        async with running(kafka, "instant") as second:
            await until(lambda: len(closed(second)) == 3)
        return first, second

    first, second = on_uvloop(main())
    assert closed(first) == [("complete", "policy")]
    assert opened(second) == ["run-1.3.0"]
    assert sorted(closed(second)) == [("aborted", "infrastructure")] * 2 + [("complete", "policy")]
    assert committed(kafka) == 4


def test_a_wrong_setting_ends_the_process_with_its_name(kafka: KafkaSettings) -> None:
    wrong = {**os.environ, "SEAMLESSFLOW_AGENTS__CONCURRENCY": "none"}
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow.producers.agents"],
        env=wrong,
        capture_output=True,
        text=True,
    )
    assert done.returncode == ExitStatus.LASTING
    assert "SEAMLESSFLOW_AGENTS__CONCURRENCY" in done.stderr


def test_garbage_among_the_tasks_is_committed_and_buried_once(
    kafka: KafkaSettings, tasks: Callable[[int], None]
) -> None:
    tasks(2)
    garbage = litter(kafka, TASKS, PARTITION, a_task(0))

    async def main() -> None:
        for _ in range(2):
            async with running(kafka, "instant"):
                await until(lambda: committed(kafka) == garbage[-1] + 1)

    on_uvloop(main())
    assert buried(kafka, TASKS, PARTITION) == garbage


def test_the_agents_stop_at_a_task_of_a_newer_release_and_commit_nothing_behind_it(
    kafka: KafkaSettings, tasks: Callable[[int], None]
) -> None:
    offset = append_newer(kafka, TASKS, PARTITION)
    tasks(2)
    instant = {"SEAMLESSFLOW_AGENTS__CALLABLE": f"{agents_process.__name__}:instant"}
    of_this = {**environment(kafka, "http://127.0.0.1:1"), **instant}
    command = [sys.executable, "-m", "seamlessflow.producers.agents"]
    done = subprocess.run(command, env=of_this, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == ExitStatus.LASTING
    assert f"tasks[{PARTITION}]@{offset}" in done.stderr
    assert committed(kafka) == 0
