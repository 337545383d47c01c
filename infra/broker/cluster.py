"""Cluster of embedded brokers on one machine. It shows what one broker cannot: lost leaders.

Each is broker and controller, with its own directory and process. Topics have up to three copies.
Used by `python -m seamlessflow.infra.broker --brokers 3` and by tests that kill a leader.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from seamlessflow.infra.broker.broker import Broker, ReadyLimit
from seamlessflow.infra.broker.programs import JavaOptions
from seamlessflow.infra.broker.storage import new_cluster_id
from seamlessflow.infra.network.addresses import HOST, free_ports
from seamlessflow.infra.settings import KafkaSettings

_MOST_COPIES = 3
_HEAP_MB = 256


class BrokerCluster:
    """Brokers over the directories `1`, `2`, ... in `data_dir`. A context manager.

    The first broker listens on `port`, or on a free port if that is None; the others listen on
    free ports. The controllers need a majority: with three brokers, one may be away.
    """

    def __init__(
        self,
        data_dir: Path,
        size: int,
        port: int | None = None,
        *,
        short_lived: bool = False,
        ready_timeout_s: float = 120,
        properties: Mapping[str, str | int] | None = None,
    ) -> None:
        free = free_ports(2 * size)
        ports = [port or free[0], *free[1:size]]
        voting = free[size:]
        voters = ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(voting, 1))
        shared = {"controller.quorum.voters": voters, **_copies(size), **(properties or {})}
        cluster_id = new_cluster_id()
        self._ports = ports
        self.brokers: Sequence[Broker] = [
            Broker(
                data_dir / str(number),
                client_port,
                java=JavaOptions(heap_mb=_HEAP_MB, short_lived=short_lived),
                ready=ReadyLimit(ready_timeout_s),
                cluster_id=cluster_id,
                watches=False,
                properties={
                    **shared,
                    "node.id": number,
                    "listeners": _listeners(client_port, vote),
                },
            )
            for number, (client_port, vote) in enumerate(zip(ports, voting, strict=True), 1)
        ]
        """The brokers in order. A broker's number in Kafka is its index here plus one."""

    def __enter__(self) -> Self:
        try:
            # Together: each waits for a majority.
            with ThreadPoolExecutor(len(self.brokers)) as starting:
                list(starting.map(Broker.start, self.brokers))
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    @property
    def settings(self) -> KafkaSettings:
        """Settings for its clients."""
        servers = ",".join(f"{HOST}:{port}" for port in self._ports)
        return self.brokers[0].settings.model_copy(update={"bootstrap_servers": servers})

    def _stop(self) -> None:
        # Together: the last one alone would wait for a majority until it is killed.
        with ThreadPoolExecutor(len(self.brokers)) as stopping:
            list(stopping.map(Broker.stop, self.brokers))


def _listeners(port: int, controller_port: int) -> str:
    return f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}"


def _copies(size: int) -> dict[str, str | int]:
    """Return the copies of Kafka's own topics. With one copy, any lost broker stops all groups."""
    copies = min(size, _MOST_COPIES)
    return {
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": max(1, copies - 1),
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": max(1, copies - 1),
    }
