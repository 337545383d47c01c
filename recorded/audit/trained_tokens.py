"""Tokens of a file in `trained/` as flat arrays, one entry for each. Pure; called by `verify.py`.

`_N`: the trained tokens of one optimizer step.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from seamlessflow.trainer.steps.trained import TrainedRun

Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]
BROKEN = -3
"""Id and version of the tokens of a line whose lists differ in length."""


@dataclass(frozen=True, slots=True)
class TrainedTokens:
    """Tokens that entered the loss of a step."""

    step: int
    runs: Sequence[TrainedRun]
    runs_N: Int64s
    """Number of the line that a token is from."""
    offsets_N: Int64s
    """Offset of a token in the completion of its turn."""
    ids_N: Int64s
    logprob_bits_N: UInt32s
    """Bits of the float32 values, so that equal means equal to the bit."""
    versions_N: Int64s

    def __len__(self) -> int:
        return len(self.ids_N)


def trained_tokens(step: int, lines: Iterable[TrainedRun]) -> TrainedTokens:
    """Return the tokens of the lines of a step, in their order."""
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


def _even(run: TrainedRun) -> TrainedRun:
    """Return the line, or one that matches no token if its lists differ in length."""
    if len(run.ids) == len(run.logprobs) == len(run.versions):
        return run
    longest = max(len(run.ids), len(run.logprobs), len(run.versions))
    broken = [BROKEN] * longest
    return replace(run, ids=broken, logprobs=[0.0] * longest, versions=broken)
