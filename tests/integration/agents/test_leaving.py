"""An agents process that ends while the gateway is away: its successor closes its sessions."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.producers.agents.gateway_client.client import GatewayRefused
from tests.integration.agents.agents_process import (
    LIMIT_S,
    Payload,
    closed,
    environment,
    opened,
    running,
    until,
)
from tests.integration.agents.group import begun, committed
from tests.integration.agents.scripted_gateway import (
    ScriptedGateway,
    accepting,
    on_uvloop,
    refusal,
)


def away(path: str, body: Payload) -> tuple[int, Payload]:
    """Open sessions, and take nothing else."""
    return accepting(path, body) if path == "/sessions" else refusal(503, "kafka")


@pytest.mark.slow
def test_a_task_whose_session_could_not_be_closed_in_time_is_left_to_the_successor(
    kafka: KafkaSettings, tasks: Callable[[int], None], tmp_path: Path
) -> None:
    (tmp_path / "my_agent.py").write_text("def run(task, session): return 0.5")
    tasks(1)

    async def main() -> ScriptedGateway:
        async with ScriptedGateway(away).serving() as gateway:
            with (tmp_path / "log").open("wb") as words:
                process = subprocess.Popen(
                    [sys.executable, "-m", "seamlessflow.producers.agents"],
                    cwd=tmp_path,
                    env=environment(kafka, gateway.url),
                    stderr=words,
                )
            await until(lambda: len(gateway.calls) > 2)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, LIMIT_S) == 0
        assert (committed(kafka), begun(kafka)) == (0, 1)
        async with running(kafka, "instant") as successor:
            await until(lambda: len(closed(successor)) == 1)
        return successor

    successor = on_uvloop(main())
    assert (opened(successor), closed(successor)) == ([], [("aborted", "infrastructure")])
    assert committed(kafka) == 1
    assert (tmp_path / "log").read_text().count("tried again") == 1


def test_a_task_that_met_a_wrong_admin_key_is_left_to_a_process_with_the_right_one(
    kafka: KafkaSettings, tasks: Callable[[int], None]
) -> None:
    async def main() -> None:
        tasks(1)
        async with running(kafka, "instant", lambda *_: refusal(401, "unauthorized")) as gateway:
            await until(lambda: len(gateway.calls) == 1)

    with pytest.raises(GatewayRefused):
        on_uvloop(main())
    assert (committed(kafka), begun(kafka)) == (0, 1)
