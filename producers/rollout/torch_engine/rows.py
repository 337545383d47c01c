"""The slots table: what each slot of the KV cache holds, and the order the slots are kept in.

Slots come in three runs: running rows, finished rows whose KV is kept for a prompt that goes on
from it, and slots never used. Moving a row moves its KV with it, so that a forward's rows are
neighbours. The finished rows are the prefix cache: an agent's next turn starts with the last one's
tokens. New weights make all KV void, so nothing of an older version is ever reused.
"""

import numpy as np
import numpy.typing as npt

from producers.rollout.engine.contract import SamplingParams
from producers.rollout.torch_engine.kv_cache import KvCache
from producers.rollout.torch_engine.sampling import SamplingBatch

_RECORD = np.dtype(
    [
        ("known", np.int64),
        ("cached", np.int64),
        ("prompt", np.int64),
        ("ticket", np.int64),
        ("released", np.int64),
        ("temperature", np.float32),
        ("top_p", np.float64),
        ("top_k", np.int64),
        ("seed", np.uint64),
    ]
)


class RowTable:
    """Columns indexed by slot: `tokens[slot, :known]`, of which the first `cached` have KV.

    `ticket` is the caller's number for a running row, rising with each admission; a row's slot may
    change with every call here, its ticket never does.
    """

    def __init__(self, kv: KvCache) -> None:
        self.kv = kv
        self.running = 0
        self.used = 0
        self.tokens: npt.NDArray[np.int32] = np.zeros((kv.max_rows, kv.max_length), np.int32)
        self._records = np.zeros(kv.max_rows, _RECORD)
        self.known: npt.NDArray[np.int64] = self._records["known"]
        self.cached: npt.NDArray[np.int64] = self._records["cached"]
        self.ticket: npt.NDArray[np.int64] = self._records["ticket"]
        self._released: npt.NDArray[np.int64] = self._records["released"]
        self._releases = 0

    def admit(
        self,
        ticket: int,
        tokens: npt.NDArray[np.int32],
        prompt_length: int,
        sampling: SamplingParams,
        seed: int,
    ) -> int:
        """Make a running row of these tokens; returns how many of them already have KV."""
        reused = self._place(tokens)
        row = self.running
        self.running += 1
        self.tokens[row, : len(tokens)] = tokens
        self._records[row] = (
            *(len(tokens), reused, prompt_length, ticket, 0),
            *(sampling.temperature, sampling.top_p, sampling.top_k, seed),
        )
        return reused

    def release(self, row: int) -> None:
        """End a running row: its KV is kept, the last running row takes its place."""
        self._releases += 1
        self._released[row] = self._releases
        self.running -= 1
        self.swap(row, self.running)

    def swap(self, one: int, other: int) -> None:
        """Exchange two slots with all they hold."""
        if one == other:
            return
        pair, swapped = [one, other], [other, one]
        cached = int(self.cached[pair].max())
        if cached:
            self.kv.swap(one, other, cached)
        known = int(self.known[pair].max())
        self.tokens[pair, :known] = self.tokens[swapped, :known]
        self._records[pair] = self._records[swapped]

    def void(self) -> None:
        """No KV is valid any more: running rows keep their tokens, finished ones are forgotten."""
        self.cached[:] = 0
        self.used = self.running

    def pending(self) -> npt.NDArray[np.int64]:
        """Of each running row, how many tokens are known but have no KV yet: 1 while decoding."""
        return self.known[: self.running] - self.cached[: self.running]

    def append(self, rows: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]) -> None:
        """Add one sampled token to each of these rows."""
        self.tokens[rows, self.known[rows]] = tokens
        self.known[rows] += 1

    def sampling(self, rows: npt.NDArray[np.int64]) -> SamplingBatch:
        """What the next token of each of these rows is drawn with."""
        records = self._records[rows]
        return SamplingBatch(
            temperature_B=records["temperature"],
            top_p_B=records["top_p"],
            top_k_B=records["top_k"],
            seed_B=records["seed"],
            offset_B=records["known"] - records["prompt"],
        )

    def _place(self, tokens: npt.NDArray[np.int32]) -> int:
        """Put a slot behind the running ones, with all KV that can be reused; returns how much."""
        donor, reused = self._longest_prefix(tokens)
        if donor >= self.running and reused == self.cached[donor]:
            target = donor
        else:
            target = self._spare()
            if reused and target != donor:
                self.kv.copy(donor, target, reused)
        self.cached[target] = reused
        self.swap(target, self.running)
        return reused

    def _longest_prefix(self, tokens: npt.NDArray[np.int32]) -> tuple[int, int]:
        """The slot whose KV covers most of the tokens but the last, and how many; (-1, 0) if none.

        The last token is left out because its logits are what a forward is needed for.
        """
        cached = self.cached[: self.used]
        length = min(len(tokens) - 1, int(cached.max(initial=0)))
        if length == 0:
            return -1, 0
        equal = self.tokens[: self.used, :length] == tokens[:length]
        common = np.minimum(np.where(equal.all(axis=1), length, equal.argmin(axis=1)), cached)
        donor = self.used - 1 - int(common[::-1].argmax())  # of equals a finished row, not a copy
        return (donor, int(common[donor])) if common[donor] else (-1, 0)

    def _spare(self) -> int:
        """A slot never used, else the one released longest ago."""
        if self.used < self.kv.max_rows:
            self.used += 1
            self.kv.reserve(self.used, 1)
            self.known[self.used - 1] = self.cached[self.used - 1] = 0
            return self.used - 1
        return self.running + int(self._released[self.running : self.used].argmin())
