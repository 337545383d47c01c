"""A run's Kafka, for commands that only read it.

A running run keeps its Kafka's address in `OUT/run.json`. If a run has ended, the embedded broker
is started on its data while a command reads them.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.disk import whole_file
from seamlessflow.infra.errors import KafkaUnavailable, SeamlessFlowError, TopicMissing
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.settings import KafkaSettings, ProcessSettings
from seamlessflow.infra.settings import load as load_settings
from seamlessflow.schemas.topics import CONTROL

KAFKA_DIR = "kafka"
WITHOUT_FOLLOWING = "; what an ended run left is shown without --follow or --watch"
"""Remedy for a command that may also read an ended run."""
_ADDRESS = "run.json"
_ANSWER_TIMEOUT_S = 2.0


class NoRunData(SeamlessFlowError):
    """A directory contains no Kafka data from a run."""

    def __init__(self, out: Path) -> None:
        self.out = out
        variables = "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS and SEAMLESSFLOW_KAFKA__TOPIC_PREFIX"
        reason = f"{out} holds no run: there is no {KAFKA_DIR} in it"
        if (out / "trained").is_dir():
            reason += f"; of a run with a Kafka of your own give {variables} instead of --out"
            reason += f", and to audit it also --trained {out / 'trained'}"
        super().__init__(reason)


class NothingRecorded(SeamlessFlowError):
    """A directory contains Kafka data from a run that ended before it made its topics."""

    lasting = True

    def __init__(self, out: Path) -> None:
        self.out = out
        super().__init__(f"nothing was recorded in {out}: its run ended while it started")


class NoRunningRun(SeamlessFlowError):
    """No run is under way in a directory."""

    def __init__(self, out: Path, remedy: str = "") -> None:
        self.out = out
        super().__init__(f"no run is under way in {out}: start it first{remedy}")


def write_address(out: Path, kafka: KafkaSettings, gateway_url: str) -> None:
    """Write the address at which commands reach a run that starts."""
    address = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "topic_prefix": kafka.topic_prefix,
        "blobs": kafka.blobs,
        "gateway": gateway_url,
    }
    # Commands read it at any time, and must never see half of it.
    with whole_file(out / _ADDRESS) as draft:
        draft.write(json.dumps(address).encode())


def remove_address(out: Path) -> None:
    """Remove an ended run's address."""
    (out / _ADDRESS).unlink(missing_ok=True)


def has_address(out: Path) -> bool:
    """Return True while a run in `out` goes on, or if it was killed."""
    return (out / _ADDRESS).exists()


@contextmanager
def kafka_to_inspect(out: Path | None) -> Iterator[KafkaSettings]:
    """Yield settings for the Kafka of the run in `out`, or for the environment's Kafka.

    `out` None stands for the environment. Raises `NoRunData`, `NothingRecorded` instead of
    `TopicMissing`, and `BrokerFailed` if the broker cannot serve the data.
    """
    if out is None:
        yield load_settings(ProcessSettings).kafka
        return
    running = _running(out)
    if running is not None:
        yield running
        return
    if not (out / KAFKA_DIR).is_dir():
        raise NoRunData(out)
    with Broker(out / KAFKA_DIR, java=SHORT_LIVED) as broker:
        try:
            yield broker.settings
        except TopicMissing as error:
            # Topics that another program made there do not count.
            if any(name.endswith(CONTROL.name) for name in partition_counts(broker.settings)):
                raise
            raise NothingRecorded(out) from error


@contextmanager
def kafka_to_audit(out: Path | None) -> Iterator[KafkaSettings]:
    """Yield settings as `kafka_to_inspect` does, also for a training on recorded sessions.

    Such a training's directory lies in the directory of the run whose Kafka it used, and is named
    after its topic prefix.
    """
    folder = None if out is None else out.absolute()
    if folder is None or has_kafka(folder) or not has_kafka(folder.parent):
        with kafka_to_inspect(out) as kafka:
            yield kafka
        return
    with kafka_to_inspect(folder.parent) as kafka:
        names = [name for name in partition_counts(kafka) if name.endswith(CONTROL.name)]
        candidates = [name.removesuffix(CONTROL.name) for name in names]
        prefixes = [prefix for prefix in candidates if prefix.strip(".") == folder.name]
        if len(prefixes) != 1:
            raise NoRunData(folder)
        yield kafka.model_copy(update={"topic_prefix": prefixes[0]})


def address_written(out: Path) -> int:
    """Return when the address in `out` was written, in ns since 1970; 0 if there is none."""
    try:
        return (out / _ADDRESS).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def remove_deleted(out: Path) -> None:
    """Remove what deleted topics have left on disk, unless a broker still runs there.

    Kafka renames a deleted topic's files at once, and removes them a minute later. A broker that
    was only started for a command is gone by then.
    """
    if not has_address(out):
        for left in list((out / KAFKA_DIR).rglob("*-delete")):
            shutil.rmtree(left)


def kafka_of_running(out: Path | None, remedy: str = "") -> KafkaSettings:
    """Return settings for the Kafka of the run under way in `out`, or for the environment's.

    Starts no broker: it would stand in the way of a run that starts. Raises `NoRunningRun` with the
    `remedy`.
    """
    if out is None:
        return load_settings(ProcessSettings).kafka
    running = _running(out)
    if running is None:
        raise NoRunningRun(out, remedy)
    return running


def has_kafka(out: Path) -> bool:
    """Return whether a directory has a run with its own Kafka, live or ended."""
    return (out / KAFKA_DIR).is_dir() or has_address(out)


def _running(out: Path) -> KafkaSettings | None:
    """Return a running run's Kafka; None if `run.json` is missing or left from a crash."""
    try:
        address = json.loads((out / _ADDRESS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    settings = KafkaSettings(
        bootstrap_servers=address["bootstrap_servers"],
        topic_prefix=address["topic_prefix"],
        blobs=address.get("blobs"),
    )
    try:  # a killed run leaves its address behind
        find_cluster(settings, limit_s=_ANSWER_TIMEOUT_S)
    except KafkaUnavailable:
        return None
    return settings
