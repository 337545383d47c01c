"""A run on two nodes: its configuration, and a Kafka on loopback that both reach as hosts would."""

import select
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamlessflow.infra.settings import KafkaSettings
from tests.e2e.runs.short_run import short_run

STEPS = 6
AGENT = """
import httpx

async def run(task, session):
    sample = int(session.session_id.split(".")[1])
    async with httpx.AsyncClient(base_url=session.base_url, timeout=60) as client:
        answer = await client.post(
            "/chat/completions",
            headers={"authorization": f"Bearer {session.api_key}"},
            json={
                "model": session.model,
                "max_tokens": 8,
                "messages": [{"role": "user", "content": "go"}],
            },
        )
        answer.raise_for_status()
    return float(sample % 2)
"""


def own_address() -> str:
    """Return the address of this machine that others would use; skip where it has none."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: only a route is looked up
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


def _carry(connection: socket.socket, other: socket.socket) -> None:
    # A node that is killed resets its connections.
    with connection, other, suppress(ConnectionError):
        while True:
            for end in select.select([connection, other], [], [])[0]:
                data = end.recv(65536)
                if not data:
                    return
                (other if end is connection else connection).sendall(data)


@contextmanager
def reached_by_hosts(kafka: KafkaSettings, host: str) -> Iterator[KafkaSettings]:
    """Yield a Kafka on loopback at an address that is none, as hosts would name it."""
    to, _, port = kafka.bootstrap_servers.rpartition(":")
    with socket.create_server((host, 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    came, _ = listening.accept()
                except OSError:
                    return  # closed
                try:
                    ends = (came, socket.create_connection((to, int(port))))
                except OSError:
                    came.close()  # the broker has ended
                    continue
                threading.Thread(target=_carry, args=ends, daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        address = f"{host}:{listening.getsockname()[1]}"
        yield kafka.model_copy(update={"bootstrap_servers": address})
        listening.shutdown(socket.SHUT_RDWR)


def two_nodes(
    directory: Path,
    kafka: KafkaSettings,
    host: str,
    backend: str,
    names: Sequence[str] = ("one", "two"),
    steps: int = STEPS,
) -> Path:
    """Write the configuration of a run whose gang is on both nodes."""
    config = short_run(directory, AGENT, steps, modelled=backend == "clock", kafka=kafka)
    values: dict[str, Any] = yaml.safe_load(config.read_text())
    tags = ["rollout", "train"]
    values |= {
        "workers": [{"id": name, "tags": tags, "node": name} for name in names],
        "gateway": {"secret": "a secret of this test alone"},
        "trainer": {
            **values["trainer"],
            "backend": backend,
            "ranks": 2,
            "host": host,
        },
    }
    config.write_text(yaml.safe_dump(values))
    return config
