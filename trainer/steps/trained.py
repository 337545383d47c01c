"""The record of what was trained: every token that entered a loss, one file an optimizer step.

A witness, made from the packed micro-batches and not from what went into packing, so that an
independent reader can hold it against the event log. Written before the step is committed; a
committed version always has its file. `trained/step-<step>-version-<version>.jsonl.gz`, gzipped
lines of JSON:

    {"format": 1, "step": 4, "version": 5, "lineage": "..", "policy": "..", "tokens": 123}
    {"session": "..", "turn": "..", "offset": 0, "ids": [..], "logprobs": [..], "versions": [..],
     "advantage": 0.7}

`step` counts from 0, `version` is the one the step makes. Each further line is a run of tokens that
follow each other in a turn's completion, the first at `offset`; `logprobs` are the engine's float32
values, `versions` those that sampled the tokens. A token is in one line only.
"""

import gzip
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from trainer.data.chains import Chain
from trainer.data.packing import Int32s, Int64s, MicroBatch

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Which step a file is of."""

    format: int = FORMAT
    step: int
    version: int
    lineage: str
    policy: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRun:
    """Tokens that follow each other in the completion of a turn."""

    session: str
    turn: str
    offset: int
    ids: list[int]
    logprobs: list[float]
    versions: list[int]
    advantage: float


def write_trained(
    directory: Path, header: Header, chains: Sequence[Chain], batches: Sequence[MicroBatch]
) -> Path:
    """Writes the file of a step, whole or not at all; one of the same name is replaced."""
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / f"step-{header.step:08d}-version-{header.version:08d}.jsonl.gz"
    draft = target.with_name(f".{target.name}")
    with draft.open("wb") as file:
        with gzip.GzipFile("", "wb", compresslevel=4, fileobj=file, mtime=0) as packed:
            packed.write(_line(header))
            for run in _runs(chains, batches):
                packed.write(_line(run))
        file.flush()
        os.fsync(file.fileno())
    draft.rename(target)
    return target


def read_trained(path: Path) -> tuple[Header, list[TrainedRun]]:
    """A file as it was written."""
    with gzip.open(path, "rb") as lines:
        first, *rest = (orjson.loads(line) for line in lines)
    return Header(**first), [TrainedRun(**run) for run in rest]


@dataclass(frozen=True, slots=True)
class _Provenance:
    """Turn and offset of all S tokens of all C chains, one behind the other."""

    starts_C: Int64s
    turns_S: Int32s
    offsets_S: Int32s


def _provenance(chains: Sequence[Chain]) -> _Provenance:
    lengths_C = np.array([len(chain) for chain in chains], np.int64)
    empty = np.zeros(0, np.int32)
    return _Provenance(
        np.cumsum(lengths_C) - lengths_C,
        np.concatenate([empty, *(chain.tokens.turns_T for chain in chains)]),
        np.concatenate([empty, *(chain.tokens.offsets_T for chain in chains)]),
    )


def _runs(chains: Sequence[Chain], batches: Sequence[MicroBatch]) -> Iterator[dict[str, Any]]:
    flat = _provenance(chains)
    for batch in batches:
        if len(batch):
            yield from _runs_of(chains, flat, batch)


def _runs_of(
    chains: Sequence[Chain], flat: _Provenance, batch: MicroBatch
) -> Iterator[dict[str, Any]]:
    """Cuts the trained tokens where the chain changes or a place is left out or a turn ends."""
    owners_N, places_N = batch.chains_N, batch.places_N
    turns_N = flat.turns_S[flat.starts_C[owners_N] + places_N]
    offsets_N = flat.offsets_S[flat.starts_C[owners_N] + places_N]
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
            "advantage": float(batch.advantages_N[start]),
        }


def _line(content: object) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
