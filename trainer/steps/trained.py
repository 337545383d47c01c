"""The record of trained tokens: every token that entered a loss, one file per optimizer step.

It is made from the packed micro-batches, not from the chains before packing. So an independent
reader can compare it with the log. It is written before the step is committed, so a committed
version always has its file, `trained/step-<step>-version-<version>.jsonl.gz`: gzipped JSON lines.

    {"format": 1, "step": 4, "version": 5, "lineage": "..", "policy": "..", "tokens": 123}
    {"session": "..", "turn": "..", "offset": 0, "ids": [..], "logprobs": [..], "versions": [..],
     "advantage": 0.7, "temperature": 1.0}

`step` counts from 0; `version` is the version that the step makes. Each further line is a run of
consecutive tokens in a turn's completion, the first at `offset`. `logprobs` are the engine's values
in float32 at `temperature`. `versions` are those that sampled the tokens. `advantage` is one number
for all tokens, or a list. A token is in only one line. `StepCommitted` has the lines' SHA-256,
which shows whether a file was changed later.
"""

import gzip
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from seamlessflow.infra.disk import whole_file
from seamlessflow.schemas.arrays import Float32s, Int32s
from seamlessflow.trainer.data.chains import Chain
from seamlessflow.trainer.data.packing import MicroBatch

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A file's first line: the step that it belongs to."""

    format: int = FORMAT
    step: int
    version: int
    lineage: str
    policy: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRun:
    """Consecutive trained tokens in a turn's completion."""

    session: str
    turn: str
    offset: int
    ids: list[int]
    logprobs: list[float]
    versions: list[int]
    advantage: float | list[float]
    """Each token's advantage, or one for all."""
    temperature: float = 1.0


def write_trained(
    directory: Path, header: Header, parts: Sequence[tuple[Sequence[Chain], Sequence[MicroBatch]]]
) -> str:
    """Write a step's file atomically, replacing one with the same name.

    `parts`: chains and their micro-batches, for each update in an epoch. Returns the lines'
    SHA-256, in hexadecimal. Raises `DiskFull`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with (
        whole_file(directory / file_name(header.step, header.version)) as file,
        gzip.GzipFile("", "wb", compresslevel=4, fileobj=file, mtime=0) as packed,
    ):
        runs = (run for chains, batches in parts for run in _runs(chains, batches))
        for content in chain((header,), runs):
            line = _line(content)
            digest.update(line)
            packed.write(line)
    return digest.hexdigest()


def file_name(step: int, version: int) -> str:
    """Return the file name for a step that made this version."""
    return f"step-{step:08d}-version-{version:08d}.jsonl.gz"


def parsed(content: bytes) -> tuple[Header, list[TrainedRun]]:
    """Return the header and the runs from a file's lines."""
    first, *rest = (orjson.loads(line) for line in content.splitlines())
    return Header(**first), [TrainedRun(**run) for run in rest]


def _runs(chains: Sequence[Chain], batches: Sequence[MicroBatch]) -> Iterator[dict[str, Any]]:
    starts_C = np.cumsum([0, *map(len, chains)])
    empty = np.zeros(0, np.int32)
    turns_S = np.concatenate([empty, *(chain.tokens.turns_T for chain in chains)])
    offsets_S = np.concatenate([empty, *(chain.tokens.offsets_T for chain in chains)])
    for batch in batches:
        if len(batch):
            sources_N = starts_C[batch.chains_N] + batch.places_N
            yield from _runs_of(chains, batch, turns_S[sources_N], offsets_S[sources_N])


def _runs_of(
    chains: Sequence[Chain], batch: MicroBatch, turns_N: Int32s, offsets_N: Int32s
) -> Iterator[dict[str, Any]]:
    """Yield a micro-batch's runs; its tokens have these turns and offsets.

    A run ends where the chain changes, where a token is left out, and where the turn changes.
    """
    owners_N = batch.chains_N
    places_N = batch.places_N
    breaks = (np.diff(owners_N) != 0) | (np.diff(places_N) != 1) | (np.diff(turns_N) != 0)
    starts = [0, *(np.flatnonzero(breaks) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(batch)], strict=True):
        chain = chains[int(owners_N[start])]
        yield {
            "session": chain.session_id,
            "turn": chain.turns[int(turns_N[start])],
            "offset": int(offsets_N[start]),
            "ids": batch.targets_N[start:end],
            "logprobs": batch.logprobs_N[start:end],
            "versions": batch.versions_N[start:end],
            "advantage": _plain(batch.advantages_N[start:end]),
            "temperature": float(batch.temperatures_N[start]),
        }


def _plain(advantages_N: Float32s) -> float | Float32s:
    """Return one number if all advantages are equal."""
    equal = (advantages_N == advantages_N[0]).all()
    return float(advantages_N[0]) if equal else advantages_N


def _line(content: object) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
