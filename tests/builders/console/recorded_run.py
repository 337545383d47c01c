"""A recorded run as the console explains it, and what the run itself kept of its tokens."""

import gzip
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from seamlessflow.console.views.session.reason import TokenReason
from seamlessflow.console.views.session.reasons import (
    ExplainedTokens,
    SessionSources,
    explained,
)
from seamlessflow.console.views.session.trained_runs import trained_runs
from seamlessflow.infra.kafka.client import Received
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.identity import session_name
from seamlessflow.schemas.records import (
    PartitionClaimed,
    SessionOpened,
    StepCommitted,
    Trajectory,
)
from seamlessflow.schemas.topics import CONTROL, SESSIONS, TRAJECTORIES
from seamlessflow.trainer.steps.trained import parsed

TrainedToken = tuple[str, str, int]
"""Session, turn, and place in the turn's answer."""


@dataclass
class RecordedLog:
    """The topics of a run, and the tokens in its files."""

    events: list[Received]
    trajectories: dict[str, Received]
    control: list[Received]
    directory: Path
    sums: Counter[str] = field(default_factory=Counter)
    """Tokens of all sessions that were explained, by the kind of their reason."""
    masked: Counter[str] = field(default_factory=Counter)
    """Those that a rule of a session masked, by the rule."""

    @classmethod
    def read(cls, kafka: KafkaSettings, directory: Path) -> "RecordedLog":
        """Read the topics of a run whose files of trained tokens are in `directory`."""
        made = {
            item.record.session_id: item
            for item in read_topic(kafka, TRAJECTORIES, Skipped())
            if isinstance(item.record, Trajectory)
        }
        events = sorted(read_topic(kafka, SESSIONS, Skipped()), key=lambda item: item[1:3])
        return cls(events, made, list(read_topic(kafka, CONTROL, Skipped())), directory)

    @property
    def sessions(self) -> list[str]:
        """The ids of all sessions that were opened."""
        opened = (item.record for item in self.events if isinstance(item.record, SessionOpened))
        return list(dict.fromkeys(record.session_id for record in opened))

    def explained(self) -> Iterator[ExplainedTokens]:
        """Yield every session's tokens with their reasons, and add them to the sums."""
        claims = [item for item in self.events if isinstance(item.record, PartitionClaimed)]
        by_session: dict[str, list[Received]] = {}
        for item in self.events:
            by_session.setdefault(session_name(getattr(item.record, "session_id", "")), []).append(
                item
            )
        records = [item.record for item in self.control if isinstance(item.record, StepCommitted)]
        of_groups = self._of_groups()
        for session_id in self.sessions:
            events = by_session[session_name(session_id)]
            opened = next(item.record for item in events if _opens(item, session_id))
            control = [*of_groups[""], *of_groups.get(getattr(opened, "group_id", "") or "-", [])]
            partition = events[0].partition
            owners = [item for item in claims if item.partition == partition]
            tokens = explained(
                SessionSources(
                    session_id=session_id,
                    events=sorted([*owners, *events], key=lambda item: item.offset),
                    trajectory=self.trajectories.get(session_id),
                    control=sorted(control, key=lambda item: item.offset),
                    trained=trained_runs(self.directory, records, session_id),
                )
            )
            assert tokens is not None
            self._count(tokens)
            yield tokens

    def trained_tokens(self) -> Counter[TrainedToken]:
        """Return every token in the files, with the number of times that it is there."""
        tokens: Counter[TrainedToken] = Counter()
        for path in self.directory.rglob("*.jsonl.gz"):
            (_, runs) = parsed(gzip.decompress(path.read_bytes()))
            for run in runs:
                places = range(run.offset, run.offset + len(run.ids))
                tokens.update((run.session, run.turn, place) for place in places)
        return tokens

    def _of_groups(self) -> dict[str, list[Received]]:
        """Return the records of `control` by their group; under no name those of no single one."""
        of_groups: dict[str, list[Received]] = {"": []}
        for item in self.control:
            of_groups.setdefault(getattr(item.record, "group_id", ""), []).append(item)
        return of_groups

    def _count(self, tokens: ExplainedTokens) -> None:
        self.sums.update({str(kind): count for kind, count in tokens.tokens_by_kind().items()})
        for row in tokens.rows:
            if row.kind is TokenReason.MASKED and row.record != "StepCommitted":
                self.masked[row.rule] += row.tokens


def _opens(item: Received, session_id: str) -> bool:
    return isinstance(item.record, SessionOpened) and item.record.session_id == session_id


def named_trained(tokens: ExplainedTokens) -> set[TrainedToken]:
    """Return the tokens of a session that the console calls trained."""
    columns = tokens.columns
    trained = np.array([row.kind is TokenReason.TRAINED for row in tokens.rows], np.bool_)
    places = np.flatnonzero(trained[tokens.reasons_T])
    nodes = [columns.nodes[number] for number in columns.nodes_T[places].tolist()]
    return {
        (columns.trajectory.session_id, node.turn_id, place - node.start)
        for node, place in zip(nodes, places.tolist(), strict=True)
    }
