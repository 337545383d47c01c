"""Files of trained tokens, held against the commits of their steps.

A commit names its sessions, the tokens of each in the loss, and the hash of the file. So a line
that is missing, one too many, and a changed advantage show, though each token that is there was
sampled. Called by both checks of tokens.
"""

import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from seamlessflow.schemas.records import StepCommitted
from seamlessflow.schemas.steps import step_name
from seamlessflow.trainer.steps.trained import Header, TrainedRun, file_name, parsed

MOST_SESSIONS = 5
"""Most sessions of a file of which each fault is listed."""
_BROKEN = (OSError, EOFError, zlib.error, ValueError, TypeError)
"""Errors of reading what is no gzip, no JSON, or no line of trained tokens."""


class TrainedFile(NamedTuple):
    """Content of a file of trained tokens."""

    header: Header
    runs: Sequence[TrainedRun]
    sha256: str = ""
    """SHA-256 of its lines, in hexadecimal."""


class FileFault(NamedTuple):
    """A way in which a step's file is not what the step committed."""

    step: StepCommitted
    what: str

    def __str__(self) -> str:
        return f"{step_name(self.step.step)}: {self.what}"


def step_files(
    directory: Path, steps: Iterable[StepCommitted], faults: list[FileFault]
) -> Iterator[tuple[StepCommitted, TrainedFile]]:
    """Yield the files of the steps that have one; append to `faults` what is wrong with them.

    One that cannot be read is left out, as if the step had none.
    """
    for step in steps:
        try:
            file = _file(directory, step)
        except _BROKEN as error:
            faults.append(FileFault(step, f"its file in {directory} cannot be read: {error}"))
            continue
        if file is not None:
            faults.extend(FileFault(step, what) for what in file_faults(step, file))
            yield step, file


def file_faults(step: StepCommitted, file: TrainedFile) -> Iterator[str]:
    """Yield a sentence for each way in which a file is not what its step committed."""
    counts = Counter[str]()
    for run in file.runs:
        counts[run.session] += len(run.ids)
    yield from _wrong_counts(step, file.header, counts)
    members = {name for group in step.groups for name in group.sessions}
    strangers = [name for name in counts if members and name not in members]
    for name in strangers[:MOST_SESSIONS]:
        yield f"its file has session {name}, which is in none of its groups"
    if step.trained_sha256 not in ("", file.sha256):
        yield (
            "its file is not the one that it committed: a token, an advantage, a temperature or "
            "the order of the lines was changed since"
        )


def _file(directory: Path, step: StepCommitted) -> TrainedFile | None:
    """Return the file of a step; further policies have folders of their own."""
    name = file_name(step.step, step.version)
    for path in (directory / name, directory / step.policy / name):
        if path.exists():
            content = gzip.decompress(path.read_bytes())
            header, runs = parsed(content)
            if header.policy == step.policy or not step.policy:
                return TrainedFile(header, runs, hashlib.sha256(content).hexdigest())
    return None


def _wrong_counts(step: StepCommitted, header: Header, counts: Counter[str]) -> Iterator[str]:
    committed = step.trained_tokens
    if committed:
        names = [name for name in {**committed, **counts} if committed.get(name, 0) != counts[name]]
        for name in names[:MOST_SESSIONS]:
            yield (
                f"its file has {counts[name]} tokens of session {name}, and it committed "
                f"{committed.get(name, 0)}"
            )
    if header.tokens != counts.total():
        yield f"its file has {counts.total()} tokens, and its first line says {header.tokens}"
