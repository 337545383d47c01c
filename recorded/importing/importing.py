"""Files with sequences that are brought in as trajectories under a separate prefix.

Each file format has a reader for rows; the one for JSON lines stands here.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson
import xxhash

from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.json_lines import json_fault, json_lines
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import check_prefix, create_topics
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.importing.foreign_row import ForeignRowRejected, RowRead, foreign_row
from seamlessflow.recorded.importing.foreign_trajectory import (
    ForeignRules,
    RowOrigin,
    foreign_trajectory,
)
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import SESSIONS, TRAJECTORIES

ReadRows = Callable[[Path], Iterator[RowRead]]
"""Reader that yields a file's rows in order."""
_FLUSH_EVERY = 200
"""Trajectories that may wait for Kafka."""
_FLUSH_S = 60.0
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class ImportJob:
    """Files to bring in, each with its format's reader, and the prefix to write under."""

    files: Sequence[tuple[Path, ReadRows]]
    prefix: str
    rules: ForeignRules = field(default_factory=ForeignRules)


@dataclass(slots=True)
class ImportOutcome:
    """Counts over all files."""

    written: int = 0
    tokens: int = 0
    sampled: int = 0
    """Tokens in the written ones that the files leave in their loss."""
    already_written: int = 0
    """Rows that an earlier call wrote."""


def import_files(kafka: KafkaSettings, job: ImportJob, stopping: Stopping = never) -> ImportOutcome:
    """Write a trajectory for each row that is not there yet; check all rows first.

    Raises `ForeignRowRejected`, `SettingsRejected` for a prefix with sessions, and what
    `read_topic` and `Producer` raise.
    """
    outcome = ImportOutcome()
    groups = _groups(job)
    samples = Counter[str]()
    check_target(kafka, job.prefix)
    target = kafka.model_copy(update={"topic_prefix": job.prefix})
    create_topics(target, [TRAJECTORIES], stopping=stopping)
    existing = set[str]()
    for item in read_topic(target, TRAJECTORIES, Skipped(), stopping=stopping):
        if isinstance(item.record, Trajectory):
            _check_group(item.record, groups, job.prefix)
            existing.add(item.record.session_id)
    producer = Producer(target, "import", linger_ms=5)
    try:
        for path, rows in job.files:
            for made in _trajectories(path, rows, job.rules):
                group = made.group_id
                sample = samples[made.group_id]
                samples[group] += 1
                made = replace(made, sample=sample, group_size=len(groups[group]))
                if made.session_id in existing:
                    outcome.already_written += 1
                    continue
                existing.add(made.session_id)
                producer.send(TRAJECTORIES.name, made, key=made.group_id)
                _count(outcome, made)
                if outcome.written % _FLUSH_EVERY == 0:
                    producer.flush(_FLUSH_S)
        producer.flush(_FLUSH_S)
    finally:
        producer.close()
    return outcome


def jsonl_rows(path: Path) -> Iterator[RowRead]:
    """Yield a file's objects; raises `ForeignRowRejected` for a line that is no object."""
    with path.open("rb") as file:
        for line in json_lines(file):
            try:
                row = orjson.loads(line.content)
            except orjson.JSONDecodeError as error:
                reason = f"no JSON: {json_fault(line.content, error)}"
                raise ForeignRowRejected(str(path), line.number, reason) from None
            if not isinstance(row, dict):
                raise ForeignRowRejected(str(path), line.number, "no JSON object")
            yield row


def _groups(job: ImportJob) -> dict[str, set[str]]:
    """Return each group's sessions."""
    groups: dict[str, set[str]] = {}
    for path, rows in job.files:
        for made in _trajectories(path, rows, job.rules):
            groups.setdefault(made.group_id, set()).add(made.session_id)
    return groups


def _check_group(existing: Trajectory, groups: Mapping[str, set[str]], prefix: str) -> None:
    """Raise `SettingsRejected` if an earlier call wrote other rows of a group."""
    ours = groups.get(existing.group_id)
    if ours is not None and existing.session_id not in ours:
        reason = f"{prefix}{TRAJECTORIES.name} has other rows of group {existing.group_id}"
        raise SettingsRejected("--to", f"{reason}: bring all in at once, to another prefix")


def _trajectories(path: Path, rows: ReadRows, rules: ForeignRules) -> Iterator[Trajectory]:
    content = _digest(path)
    for number, row in enumerate(rows(path), 1):
        origin = RowOrigin(str(path), path.name, content, number)
        yield foreign_trajectory(origin, foreign_row(str(path), number, row), rules)


def _digest(path: Path) -> str:
    """Return a hash that stands for a file's content."""
    hasher = xxhash.xxh3_64()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            hasher.update(block)
    return hasher.hexdigest()


def check_target(kafka: KafkaSettings, prefix: str) -> None:
    """Raise `SettingsRejected` for an invalid prefix, or for one whose topics belong to a run."""
    check_prefix("--to", prefix)
    if prefix == kafka.topic_prefix:
        raise SettingsRejected(
            "--to", f"{prefix!r} is the prefix of the recorded topics: name another"
        )
    if prefix + SESSIONS.name in partition_counts(kafka):
        raise SettingsRejected("--to", f"{prefix}{SESSIONS.name} is there: name another prefix")


def _count(outcome: ImportOutcome, made: Trajectory) -> None:
    outcome.written += 1
    outcome.tokens += len(made.loss_mask)
    outcome.sampled += made.loss_mask.count(1) or sum(made.masked_tokens.values())
