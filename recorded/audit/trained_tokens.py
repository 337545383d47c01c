"""Trained tokens of steps: their files, checked against the commits, and as arrays.

A commit names its sessions, how many tokens each has in the loss, and the file's hash. So a missing
line, an additional line and a changed advantage show, even if each token there was sampled. Called
by both checks of tokens. `_N`: one optimizer step's trained tokens, an entry for each.
"""

import gzip
import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seamlessflow.schemas.arrays import Int64s, UInt32s
from seamlessflow.schemas.records import StepCommitted
from seamlessflow.schemas.tokens import step_name
from seamlessflow.trainer.steps.trained import Header, TrainedRun, file_name, parsed

MOST_SESSIONS = 5
"""Most sessions in a file whose faults are all listed."""
_BROKEN = (OSError, EOFError, zlib.error, ValueError, TypeError)
"""Errors when a file is no gzip, no JSON, or has no line of trained tokens."""
BROKEN = -3
"""Id and version of tokens in a line whose lists differ in length."""


class TrainedFile(NamedTuple):
    """Content of a file with trained tokens."""

    header: Header
    runs: Sequence[TrainedRun]
    sha256: str = ""
    """SHA-256 over its lines, in hexadecimal."""


class FileFault(NamedTuple):
    """A difference between a step's file and what the step committed."""

    step: StepCommitted
    what: str

    def __str__(self) -> str:
        return f"{step_name(self.step.step)}: {self.what}"


def step_files(
    directory: Path, steps: Iterable[StepCommitted], faults: list[FileFault]
) -> Iterator[tuple[StepCommitted, TrainedFile]]:
    """Yield the steps' files, as far as they exist; append to `faults` what is wrong with them.

    A file that cannot be read is left out, as if the step had none.
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
    """Yield a sentence for each difference between a file and what its step committed."""
    counts = Counter[str]()
    for run in file.runs:
        counts[run.session] += len(run.ids)
    yield from _wrong_counts(step, file.header, counts)
    members = {name for group in step.groups for name in group.sessions}
    members |= {each.by for group in step.groups for each in group.replaced}
    strangers = [name for name in counts if members and name not in members]
    for name in strangers[:MOST_SESSIONS]:
        yield f"its file has session {name}, which is in none of its groups"
    if step.trained_sha256 not in ("", file.sha256):
        yield (
            "its file is not the one that it committed: a token, an advantage, a temperature or "
            "the order of the lines was changed since"
        )


@dataclass(frozen=True, slots=True)
class TrainedTokens:
    """Tokens that entered a step's loss."""

    step: int
    runs: Sequence[TrainedRun]
    runs_N: Int64s
    """Number of the line that a token is from."""
    offsets_N: Int64s
    """Offset of a token in its turn's completion."""
    ids_N: Int64s
    logprob_bits_N: UInt32s
    """The float32 values as bits, so that equal means equal to the bit."""
    versions_N: Int64s

    def __len__(self) -> int:
        return len(self.ids_N)


def trained_tokens(step: int, lines: Iterable[TrainedRun]) -> TrainedTokens:
    """Return the tokens in a step's lines, in line order."""
    runs = [_even(line) for line in lines]
    lengths = np.array([len(run.ids) for run in runs], np.int64)
    starts = np.array([run.offset for run in runs], np.int64) - (np.cumsum(lengths) - lengths)
    total = int(lengths.sum())
    logprobs = list(chain.from_iterable(run.logprobs for run in runs))
    return TrainedTokens(
        step=step,
        runs=runs,
        runs_N=np.repeat(np.arange(len(runs)), lengths),
        offsets_N=np.arange(total) + np.repeat(starts, lengths),
        ids_N=np.fromiter(chain.from_iterable(run.ids for run in runs), np.int64, total),
        logprob_bits_N=np.array(logprobs, np.float32).view(np.uint32),
        versions_N=np.fromiter(chain.from_iterable(run.versions for run in runs), np.int64, total),
    )


def _file(directory: Path, step: StepCommitted) -> TrainedFile | None:
    """Return a step's file; further policies have their own folders."""
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


def _even(run: TrainedRun) -> TrainedRun:
    """Return the line, or one that matches no token if its lists differ in length."""
    if len(run.ids) == len(run.logprobs) == len(run.versions):
        return run
    longest = max(len(run.ids), len(run.logprobs), len(run.versions))
    broken = [BROKEN] * longest
    return replace(run, ids=broken, logprobs=[0.0] * longest, versions=broken)
