"""Files of trained tokens, and the commits of their steps."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seamlessflow.recorded.audit.trained_tokens import TrainedFile
from seamlessflow.schemas import records as r
from seamlessflow.trainer.steps.trained import Header, TrainedRun, parsed
from tests.builders.records import control, sessions
from tests.builders.records.content import ids

LOGPROB = -0.25
WHOLE_TURN = [
    sessions.dispatched(),
    sessions.progressed(ids(3, 4)),
    sessions.completed(ids(5), token_offset=2),
]


def run(tokens: Sequence[int], offset: int = 0, **more: Any) -> TrainedRun:
    fields: dict[str, Any] = {
        "session": sessions.SESSION,
        "turn": "a",
        "offset": offset,
        "ids": list(tokens),
        "logprobs": [LOGPROB] * len(tokens),
        "versions": [0] * len(tokens),
        "advantage": 1.0,
        **more,
    }
    return TrainedRun(**fields)


def file(*runs: TrainedRun, step: int = 0, version: int = 1, lineage: str = "l") -> TrainedFile:
    tokens = sum(len(trained_run.ids) for trained_run in runs)
    header = Header(step=step, version=version, lineage=lineage, policy="p", tokens=tokens)
    return TrainedFile(header, runs)


def committed(step: int, version: int, lineage: str = "l", parent: str = "") -> r.StepCommitted:
    return control.committed(step, version=version, lineage=lineage, parent_lineage=parent)


def read_trained(path: Path) -> tuple[Header, list[TrainedRun]]:
    """Return the header and the runs of a file."""
    return parsed(gzip.decompress(path.read_bytes()))


def commit_of(file: TrainedFile) -> r.StepCommitted:
    return committed(file.header.step, file.header.version, file.header.lineage)
