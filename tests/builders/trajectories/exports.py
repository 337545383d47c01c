"""Exports of a golden log on a real broker: the commands, and the rows that they wrote."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import TRAJECTORIES
from tests.builders.own_topics import own_topics
from tests.builders.trajectories.golden_topics import write_golden
from tests.golden.golden_log import GoldenLog


@contextmanager
def named_cluster(broker: KafkaSettings, log: GoldenLog) -> Iterator[KafkaSettings]:
    """Yield a cluster with the topics of a finished run, which the environment names."""
    with own_topics(broker) as kafka, pytest.MonkeyPatch.context() as variables:
        write_golden(kafka, log)
        variables.setenv("SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
        variables.setenv("SEAMLESSFLOW_KAFKA__TOPIC_PREFIX", kafka.topic_prefix)
        yield kafka


def export(*arguments: str | Path) -> Result:
    """Run `seamlessflow export`."""
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def bring_in(*arguments: str | Path) -> Result:
    """Run `seamlessflow import`."""
    return CliRunner().invoke(app, ["import", *map(str, arguments)])


def table_files(directory: Path, table: str) -> list[Path]:
    """Return the files of a table in the order of their partitions."""
    return sorted((directory / table).iterdir())


def rows(directory: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows of all files of a table."""
    all_rows: list[dict[str, Any]] = []
    for path in table_files(directory, table):
        if path.suffix == ".jsonl":
            all_rows += map(orjson.loads, path.read_bytes().splitlines())
        else:
            all_rows += pq.read_table(path).to_pylist()
    return all_rows


def brought_in(log: KafkaSettings, prefix: str) -> list[Trajectory]:
    """Return the trajectories under a prefix."""
    target = log.model_copy(update={"topic_prefix": prefix})
    items = read_topic(target, TRAJECTORIES, Skipped())
    return [item.record for item in items if isinstance(item.record, Trajectory)]
