"""Targets for replayed trajectories: topics under a separate prefix, files, or nothing.

Each goes on where an earlier replay into it ended: topics by offsets that are committed with the
trajectories they cover, a directory by whole files. A target belongs to one replay's rules and
selection. That is checked before anything is written.
"""

import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import xxhash

from seamlessflow.infra.clock import Stopping
from seamlessflow.infra.disk import name_whole
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.kafka.bounds import BoundsLookup
from seamlessflow.infra.kafka.outage import ASK_S
from seamlessflow.infra.kafka.producer import TransactionalProducer
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import ContainerFile, container_metadata
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import SESSIONS, TRAJECTORIES

PARTS = 8
"""Parts into which the partitions are divided, each with a transactional id."""
_MOST, _MOST_BYTES = 500, 16 * 1024 * 1024
"""Most trajectories in a transaction, and most bytes of tokens and log-probs."""
_MOST_SHOWN = 300
"""Most characters that a message shows of rules and selection, which may name many sessions."""
_GROUP = "replay"
"""Consumer group, behind the prefix, whose offsets say how far a replay came."""


class TargetTaken(SeamlessFlowError):
    """A target with trajectories that a replay under other rules or another selection wrote."""

    def __init__(self, target: str, content: str) -> None:
        self.target = target
        self.content = content
        shown = content if len(content) <= _MOST_SHOWN else f"{content[:_MOST_SHOWN]}..."
        reason = f"{target} was not written by these rules and for this selection, {shown}"
        super().__init__(f"{reason}: name another target")


@dataclass(frozen=True, slots=True)
class MergeProgress:
    """Offsets on `sessions` that say where a replay goes on."""

    covered: int = 0
    """Sessions that ended before this offset are written."""
    rebuild: int = 0
    """First event of the oldest session that was open there."""
    rebuild_epoch: int = -1
    """Epoch of the newest claim before `rebuild`."""

    def reached(self, position: int, rebuild: int, rebuild_epoch: int) -> "MergeProgress":
        """Return the progress after a replay went on from here and came to `position`.

        What an earlier replay covered stays covered until this one has read as far.
        """
        return MergeProgress(max(self.covered, position), rebuild, rebuild_epoch)

    def encode(self, content: str) -> str:
        """Return a committed offset's metadata."""
        return f"{self.covered},{self.rebuild},{self.rebuild_epoch},{self.mark(content)}"

    @classmethod
    def decode(cls, metadata: str) -> tuple["MergeProgress", str]:
        """Return the progress, and the mark of the replay that made it."""
        covered, rebuild, epoch, mark = metadata.split(",")
        return cls(int(covered), int(rebuild), int(epoch)), mark

    @staticmethod
    def mark(content: str) -> str:
        """Return a hash of rules and selection, since an offset's metadata must be short."""
        return xxhash.xxh3_64_hexdigest(content.encode())


class Target(Protocol):
    """Target for the trajectories of some partitions in `sessions`."""

    def begin(self, partition: int) -> MergeProgress | None:
        """Return how far an earlier replay came; None if it finished the partition."""
        ...

    @property
    def full(self) -> bool:
        """True if it holds so much that `reached` should be called."""
        ...

    def add(self, made: Trajectory) -> None:
        """Take a trajectory."""
        ...

    def reached(self, progress: Mapping[int, MergeProgress], finished: bool) -> None:
        """Note that all trajectories up to there, by partition, were added."""
        ...

    def close(self) -> None:
        """End; give up what was added since the last commit or whole file."""
        ...


class Nowhere:
    """Target that keeps nothing: for a dry run, a verification or a difference."""

    full = False

    def begin(self, partition: int) -> MergeProgress | None:
        """Return the beginning."""
        return MergeProgress()

    def add(self, made: Trajectory) -> None:
        """Keep nothing."""

    def reached(self, progress: Mapping[int, MergeProgress], finished: bool) -> None:
        """Keep nothing."""

    def close(self) -> None:
        """Do nothing."""


class Files:
    """A file for each partition, in Avro's container format, named when it is whole."""

    full = False

    def __init__(self, directory: Path, content: str) -> None:
        self._directory = directory
        # A process that was given up may still write its own drafts.
        self._drafts = uuid.uuid4().hex[:8]
        self._content = content
        self._files = ExitStack()
        self._open: dict[int, ContainerFile] = {}

    def begin(self, partition: int) -> MergeProgress | None:
        """Return the beginning, or None if the file is there. Raises `TargetTaken`."""
        path = self._path(partition)
        if path.exists():
            if container_metadata(path).get("content") != self._content:
                raise TargetTaken(str(path), self._content)
            return None
        self._directory.mkdir(parents=True, exist_ok=True)
        draft = self._files.enter_context(self._draft(partition).open("wb"))
        metadata = {"content": self._content, "partition": str(partition)}
        self._open[partition] = ContainerFile(draft, Trajectory, metadata)
        return MergeProgress()

    def add(self, made: Trajectory) -> None:
        """Append the trajectory to its partition's file."""
        self._open[made.partition].append(made)

    def reached(self, progress: Mapping[int, MergeProgress], finished: bool) -> None:
        """Name the files once they are whole."""
        for partition in progress if finished else ():
            self._open.pop(partition).flush()
            name_whole(self._draft(partition), self._path(partition))

    def close(self) -> None:
        """Close the files; the next replay writes the unfinished ones anew."""
        self._files.close()

    def _path(self, partition: int) -> Path:
        return self._directory / f"trajectories-{partition:03}.avro"

    def _draft(self, partition: int) -> Path:
        return self._directory / f".trajectories-{partition:03}.{self._drafts}"


@dataclass(frozen=True, slots=True)
class Destination:
    """Names for a replay into topics."""

    source: KafkaSettings
    prefix: str
    """Prefix for the topics to write."""


class Topics:
    """The topic `trajectories` under another prefix, keyed by group as usual.

    One transaction commits trajectories and the offsets on `sessions` that cover them. If two
    replays write to one prefix at the same time, the later one fences the earlier.
    """

    def __init__(self, to: Destination, content: str, partitions: list[int]) -> None:
        """Prepare. Raises what `TransactionalProducer` and `Reader.committed` raise."""
        self._to = to
        self._content = content
        # Source and target have different prefixes, so names are given whole.
        whole = to.source.model_copy(update={"topic_prefix": ""})
        name = f"{to.prefix}{_GROUP}"
        self._reader = Reader(whole, f"{name}-{partitions[0] % PARTS}", group=name)
        self._producer = TransactionalProducer(whole, f"{name}-{partitions[0] % PARTS}")
        places = [self._place(number) for number in partitions]
        self._committed = self._reader.committed(places)
        self._added: list[Trajectory] = []
        self._bytes = 0

    def begin(self, partition: int) -> MergeProgress | None:
        """Return how far an earlier replay came. Raises `TargetTaken`."""
        offset, metadata = self._committed[self._place(partition)]
        if offset < 0:
            return MergeProgress()
        progress, mark = MergeProgress.decode(metadata)
        if mark != MergeProgress.mark(self._content):
            raise TargetTaken(self._to.prefix + TRAJECTORIES.name, self._content)
        return progress

    @property
    def full(self) -> bool:
        """True if there is enough for a transaction."""
        return len(self._added) >= _MOST or self._bytes >= _MOST_BYTES

    def add(self, made: Trajectory) -> None:
        """Keep the trajectory for the next transaction."""
        self._added.append(made)
        self._bytes += len(made.tokens) + len(made.logprobs)

    def reached(self, progress: Mapping[int, MergeProgress], finished: bool) -> None:
        """Commit what was added."""
        if finished or self._added:
            self._commit(progress)

    def close(self) -> None:
        """Close the clients."""
        self._producer.close()
        self._reader.close()

    def _commit(self, progress: Mapping[int, MergeProgress]) -> None:
        offsets: Mapping[tuple[str, int], tuple[int, str]] = {
            self._place(number): (entry.covered, entry.encode(self._content))
            for number, entry in progress.items()
        }
        self._producer.commit(self._send, offsets, self._reader.group_metadata())
        self._added.clear()
        self._bytes = 0

    def _send(self) -> None:
        topic = self._to.prefix + TRAJECTORIES.name
        for made in self._added:
            self._producer.send(topic, made, key=made.group_id)

    def _place(self, partition: int) -> tuple[str, int]:
        return self._to.source.topic_prefix + SESSIONS.name, partition


def check_target(
    kafka: KafkaSettings,
    prefix: str | None,
    directory: Path | None,
    content: str,
    stopping: Stopping,
) -> None:
    """Raise `TargetTaken` if the target has anything from a replay with other content."""
    if prefix is not None:
        _check_topic(kafka, prefix, content, stopping)
    elif directory is not None:
        _check_files(directory, content)


def _check_topic(kafka: KafkaSettings, prefix: str, content: str, stopping: Stopping) -> None:
    count = len(find_cluster(kafka, [SESSIONS], stopping).numbers(SESSIONS))
    whole = kafka.model_copy(update={"topic_prefix": ""})
    places = [(kafka.topic_prefix + SESSIONS.name, number) for number in range(count)]
    reader = Reader(whole, f"{prefix}{_GROUP}-check", group=f"{prefix}{_GROUP}", stopping=stopping)
    try:
        committed = reader.committed(places)
    finally:
        reader.close()
    marks = {MergeProgress.decode(text)[1] for offset, text in committed.values() if offset >= 0}
    # Without a mark, records come from another writer, or from a replay whose offsets expired.
    taken = marks - {MergeProgress.mark(content)} if marks else _has_records(kafka, prefix)
    if taken:
        raise TargetTaken(prefix + TRAJECTORIES.name, content)


def _has_records(kafka: KafkaSettings, prefix: str) -> bool:
    """Return True if the topic to write has any record."""
    target = kafka.model_copy(update={"topic_prefix": prefix})
    lookup = BoundsLookup(target)
    try:
        numbers = find_cluster(target, [TRAJECTORIES]).numbers(TRAJECTORIES)
        bounds = lookup.bounds([(TRAJECTORIES.name, number) for number in numbers], ASK_S)
    finally:
        lookup.close()
    return any(end > 0 for _, end in bounds.values())


def _check_files(directory: Path, content: str) -> None:
    for path in directory.glob("trajectories-*.avro"):
        if container_metadata(path).get("content") != content:
            raise TargetTaken(str(path), content)
