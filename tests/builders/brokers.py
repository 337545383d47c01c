"""Clusters of several embedded brokers, for what one broker cannot show."""

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from infra.broker.broker import Broker
from infra.ports import HOST, free_port
from infra.settings import KafkaSettings

BROKERS = 3


@contextmanager
def three_brokers(directory: Path) -> Iterator[KafkaSettings]:
    """Yield the settings of a cluster of three small brokers."""
    ports, voting = ([free_port() for _ in range(BROKERS)] for _ in range(2))
    voters = ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(voting, 1))
    cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    brokers = [
        Broker(
            directory / str(number),
            port,
            heap_mb=256,
            short_lived=True,
            ready_timeout_s=120,
            cluster_id=cluster_id,
            properties={
                "node.id": number,
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{voting[number - 1]}",
            },
        )
        for number, port in enumerate(ports, 1)
    ]
    with ExitStack() as running, ThreadPoolExecutor(BROKERS) as starting:
        for broker in brokers:
            running.callback(broker.stop)
        # Together: each waits for a majority.
        list(starting.map(Broker.start, brokers))
        servers = ",".join(f"{HOST}:{port}" for port in ports)
        yield KafkaSettings(bootstrap_servers=servers)
