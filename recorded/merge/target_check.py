"""Check of a whole target before a replay writes to it: one replay's rules and selection alone."""

from pathlib import Path

from seamlessflow.infra.deadline import Stopping
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.outage import ASK_S
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.merge.merge import MergeJob
from seamlessflow.recorded.merge.progress import MergeProgress
from seamlessflow.recorded.merge.targets import GROUP, TargetTaken
from seamlessflow.schemas.container import container_metadata
from seamlessflow.schemas.topics import SESSIONS, TRAJECTORIES


def check_target(job: MergeJob, stopping: Stopping) -> None:
    """Raise `TargetTaken` if anything in the job's target is not of a replay like it."""
    if job.prefix is not None:
        _check_topic(job, job.prefix, stopping)
    elif job.directory is not None:
        _check_files(job, job.directory)


def _check_topic(job: MergeJob, prefix: str, stopping: Stopping) -> None:
    count = len(find_cluster(job.kafka, [SESSIONS], stopping).numbers(SESSIONS))
    whole = job.kafka.model_copy(update={"topic_prefix": ""})
    places = [(job.kafka.topic_prefix + SESSIONS.name, number) for number in range(count)]
    reader = Reader(whole, f"{prefix}{GROUP}-check", group=f"{prefix}{GROUP}", stopping=stopping)
    try:
        committed = reader.committed(places)
    finally:
        reader.close()
    marks = {MergeProgress.decode(text)[1] for offset, text in committed.values() if offset >= 0}
    # Without a mark, records are of another writer, or of a replay whose offsets expired.
    taken = marks - {MergeProgress.mark(job.content())} if marks else _records(job.kafka, prefix)
    if taken:
        raise TargetTaken(prefix + TRAJECTORIES.name, job.content())


def _records(kafka: KafkaSettings, prefix: str) -> bool:
    """Return True if the topic to write has any record."""
    target = kafka.model_copy(update={"topic_prefix": prefix})
    lookup = BoundsLookup(target)
    try:
        numbers = find_cluster(target, [TRAJECTORIES]).numbers(TRAJECTORIES)
        bounds = lookup.bounds([(TRAJECTORIES.name, number) for number in numbers], ASK_S)
    finally:
        lookup.close()
    return any(end > 0 for _, end in bounds.values())


def _check_files(job: MergeJob, directory: Path) -> None:
    for path in directory.glob("trajectories-*.avro"):
        if container_metadata(path).get("content") != job.content():
            raise TargetTaken(str(path), job.content())
