"""Clusters of several embedded brokers, for what one broker cannot show."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seamlessflow.infra.broker.cluster import BrokerCluster
from seamlessflow.infra.settings import KafkaSettings


@contextmanager
def three_brokers(directory: Path) -> Iterator[KafkaSettings]:
    """Yield the settings of a cluster of three small brokers."""
    with BrokerCluster(directory, 3, short_lived=True) as cluster:
        yield cluster.settings
