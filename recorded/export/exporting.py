"""Recorded sessions exported into files, one partition of `sessions` after the other."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from seamlessflow.consumers.trajectories.sessions.assemble import assembled
from seamlessflow.consumers.trajectories.sessions.partition import LoggedPartition
from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.infra.blobs import largest_trajectory
from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.disk import name_whole, room_for
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.kafka.topics.existing import partition_counts
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.recorded.export.atif import AtifForm
from seamlessflow.recorded.export.forms import FORMS, Form
from seamlessflow.recorded.export.manifest import ExportManifest, ExportTerms
from seamlessflow.recorded.export.session_rows import ExportedSession
from seamlessflow.recorded.export.tables import FileFormat, TableRow
from seamlessflow.recorded.select.reading import Show, ended_sessions, partition_bounds
from seamlessflow.recorded.select.refold import Refold
from seamlessflow.recorded.select.selection import Range, SessionSelection
from seamlessflow.schemas.records import LineageStarted, Record
from seamlessflow.schemas.topics import CONTROL
from seamlessflow.trainer.credit import ONE_REWARD
from seamlessflow.trainer.data.chains import TrajectoryMalformed
from seamlessflow.trainer.data.credit.returns import RewardWeights


@dataclass(frozen=True, slots=True)
class ExportJob:
    """Selected sessions, and the form and directory of the files to write."""

    directory: Path
    format: FileFormat
    form: str = "sessions"
    selection: SessionSelection = field(default_factory=SessionSelection)


@dataclass(slots=True)
class ExportOutcome:
    """Counts over all partitions, including those that an earlier call finished."""

    counts: Counter[str]
    partitions_kept: int
    """Partitions that an earlier call finished."""
    skipped: Skipped
    matched: set[str] = field(default_factory=set)
    """Names in the selection that some read session has."""

    @property
    def rows(self) -> dict[str, int]:
        """Return how many rows were written, by table."""
        counts = self.counts.items()
        return {name[5:]: count for name, count in counts if name.startswith("rows_")}


def export(
    kafka: KafkaSettings, job: ExportJob, show: Show, stopping: Stopping = never
) -> ExportOutcome:
    """Write the files for the partitions that are not finished.

    `show` is called with two counts: further events read, and all events to read. The bounds are
    those that the first call measured. Raises `ExportTaken`, `ReadingStopped`, and what
    `read_partitions` raises.
    """
    cluster = find_cluster(kafka, stopping=stopping).id
    skipped = Skipped()
    weights = recorded_weights(kafka, skipped, stopping)
    now = partition_bounds(kafka, job.selection, stopping)
    terms = ExportTerms(
        cluster,
        kafka.topic_prefix,
        job.form,
        job.format.name,
        job.selection,
        _special(weights),
    )
    manifest = ExportManifest.begin(job.directory, terms, now)
    outcome = ExportOutcome(Counter(), len(manifest.finished), skipped)
    # Retention may have removed events since the first call.
    left = {
        number: (max(start, now[number][0]), end)
        for number, (start, end) in manifest.bounds.items()
        if number not in manifest.finished
    }
    total = sum(max(0, end - start) for start, end in left.values())
    for number, bounds in left.items():
        part = _PartitionExport(kafka, job, cluster, weights, number, outcome.skipped)
        counts = part.run(bounds, lambda count: show(count, total), stopping)
        outcome.matched |= part.matched
        manifest.finish(number, dict(counts))
    for finished in manifest.finished.values():
        outcome.counts.update(finished)
    if not outcome.rows:  # a directory without files is free for another selection
        manifest.remove()
    return outcome


class _PartitionExport:
    """One partition's export: its events, its sessions, its files."""

    def __init__(
        self,
        kafka: KafkaSettings,
        job: ExportJob,
        cluster: str,
        weights: Mapping[str, RewardWeights],
        number: int,
        skipped: Skipped,
    ) -> None:
        self._kafka = kafka
        self._job = job
        self._cluster = cluster
        self._number = number
        self._weights = weights
        self._form = FORMS[job.form]
        self._fold = Refold(LoggedPartition(number), job.selection)
        self._skipped = skipped
        self._counts: Counter[str] = Counter(events=0, sessions=0, tokens=0)

    @property
    def matched(self) -> set[str]:
        """Names from the selection that the partition's sessions have."""
        return self._fold.matched

    def run(self, bounds: Range, count: Callable[[int], None], stopping: Stopping) -> Counter[str]:
        """Write the partition's files; return counts of what they contain.

        Raises `DiskFull`.
        """
        if bounds[0] < bounds[1]:
            directory = self._job.directory
            with (
                room_for(directory, directory),
                _PartitionFiles(self._job, self._form, self._number) as files,
            ):
                for row in self._rows(bounds, count, stopping):
                    files.append(*row)
            self._counts.update(files.rows)
        self._counts["sessions_open"] = self._fold.open
        self._counts["beginnings_gone"] = self._fold.beginnings_gone if bounds[0] else 0
        return self._counts

    def _rows(
        self, bounds: Range, count: Callable[[int], None], stopping: Stopping
    ) -> Iterator[tuple[str, TableRow]]:
        def counted(events: int) -> None:
            self._counts["events"] += events
            count(events)

        sessions = ended_sessions(self._kafka, self._fold, bounds, self._skipped, counted, stopping)
        for session in sessions:
            yield from self._exported(session)

    def _exported(self, session: Session) -> Iterator[tuple[str, TableRow]]:
        made, _ = assembled(session, self._number, largest_trajectory(self._kafka))
        if not self._job.selection.chooses(made):
            return
        weights = self._weights.get(made.policy, ONE_REWARD)
        exported = ExportedSession(session, made, self._cluster, self._kafka.topic_prefix, weights)
        try:
            rows = list(self._form.rows(exported))
        except TrajectoryMalformed:
            self._counts["malformed"] += 1
            return
        self._counts["sessions"] += 1
        self._counts["tokens"] += len(exported.made.loss_mask)
        yield from rows


class _PartitionFiles:
    """A partition's files, one for each table with rows; named when all are whole."""

    def __init__(self, job: ExportJob, form: Form | AtifForm, partition: int) -> None:
        self._open = job.format.open
        self._tables = {
            table.name: (table, table.path(job.directory, partition, job.format.suffix))
            for table in form.tables
        }
        self._files = ExitStack()
        self._appends: dict[str, Callable[[TableRow], None]] = {}
        self.rows: Counter[str] = Counter()

    def append(self, name: str, row: TableRow) -> None:
        """Append a row to the table with this name."""
        if name not in self._appends:
            table, path = self._tables[name]
            path.parent.mkdir(parents=True, exist_ok=True)
            file = self._files.enter_context(closing(self._open(_draft(path), table)))
            self._appends[name] = file.append
        self._appends[name](row)
        self.rows[f"rows_{name}"] += 1

    def __enter__(self) -> "_PartitionFiles":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        whole = False
        try:
            self._files.close()  # writes the rest, for which there may be no room
            whole = kind is None
        finally:
            for name in self._appends:
                path = self._tables[name][1]
                if whole:
                    name_whole(_draft(path), path)
                else:
                    _draft(path).unlink()


def recorded_weights(
    kafka: KafkaSettings, skipped: Skipped, stopping: Stopping
) -> Mapping[str, RewardWeights]:
    """Return the reward weights for each policy that the run trained.

    `sessions` has a session's rewards by name; `control` has the weights with which they are
    summed.

    Raises what `read_topic` raises.
    """
    if kafka.topic_prefix + CONTROL.name not in partition_counts(kafka):
        return {}
    control = read_topic(kafka, CONTROL, skipped, stopping=stopping)
    return newest_weights(item.record for item in control)


def newest_weights(control: Iterable[Record]) -> dict[str, RewardWeights]:
    """Return the newest lineage's weights for each policy that has a lineage."""
    newest: dict[str, RewardWeights] = {}
    for record in control:
        if isinstance(record, LineageStarted):
            rewards = orjson.loads(record.settings).get("trainer", {}).get("rewards", {})
            weights = {name: float(weight) for name, weight in rewards.items() if weight}
            newest[record.policy] = weights or ONE_REWARD
    return newest


def _special(weights: Mapping[str, RewardWeights]) -> dict[str, RewardWeights]:
    """Return the weights for policies whose return is not just the one reward."""
    return {policy: factors for policy, factors in weights.items() if factors != ONE_REWARD}


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}")
