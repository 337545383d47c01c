"""The Kafka of a run, whether the run is under way, is kept in a directory, or lives elsewhere.

A run under way says in `OUT/run.json` where its Kafka is; of one that is over, the embedded broker
is started over its data for as long as somebody reads.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.broker.broker import Broker
from infra.errors import KafkaUnavailable, SeamlessFlowError
from infra.kafka.topics import cluster_id
from infra.settings import KafkaSettings, ProcessSettings
from infra.settings import load as load_settings

KAFKA_DIR = "kafka"
_ADDRESS = "run.json"
_LIVE_TIMEOUT_S = 2.0


class NothingKept(SeamlessFlowError):
    """There is no Kafka data of a run."""

    def __init__(self, out: Path) -> None:
        self.out = out
        super().__init__(f"{out} holds no run: there is no {KAFKA_DIR} in it")


def announce(out: Path, kafka: KafkaSettings, gateway_url: str) -> None:
    """Says where a run that is under way can be reached."""
    address = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "topic_prefix": kafka.topic_prefix,
        "gateway": gateway_url,
    }
    (out / _ADDRESS).write_text(json.dumps(address), encoding="utf-8")


def withdraw(out: Path) -> None:
    """Takes it back."""
    (out / _ADDRESS).unlink(missing_ok=True)


@contextmanager
def kafka_of(out: Path | None) -> Iterator[KafkaSettings]:
    """Kafka of the run in `out`; None: the one of the environment.

    Raises `NothingKept`, and `BrokerFailed` when the kept data cannot be served.
    """
    if out is None:
        yield load_settings(ProcessSettings).kafka
        return
    live = _live(out)
    if live is not None:
        yield live
        return
    if not (out / KAFKA_DIR).is_dir():
        raise NothingKept(out)
    with Broker(out / KAFKA_DIR, short_lived=True) as broker:
        yield broker.settings


def _live(out: Path) -> KafkaSettings | None:
    try:
        address = json.loads((out / _ADDRESS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    settings = KafkaSettings(
        bootstrap_servers=address["bootstrap_servers"], topic_prefix=address["topic_prefix"]
    )
    try:
        cluster_id(settings, _LIVE_TIMEOUT_S)
    except KafkaUnavailable:
        return None
    return settings
