"""Row table: the sequence that each KV cache row holds, and the order of the rows.

The first rows belong to running requests. Behind them are finished requests' rows. Their KV is kept
for a prompt that continues it: an agent's next turn begins with its last turn's tokens. Behind
those are rows never used. If another row has KV for a running row's next tokens, the running row
copies it: equal prompts are computed once. Moving a row moves its KV with it, so that the rows in
one pass are neighbours. New weights invalidate all KV, so older versions' KV is never reused.
"""

import numpy as np
import numpy.typing as npt

from seamlessflow.producers.rollout.engine.request import Request
from seamlessflow.producers.rollout.torch_engine.kv_cache import KvCache
from seamlessflow.producers.rollout.torch_engine.sampling import SamplingBatch

_GROWTH = 64
"""Tokens by which a row can grow before its neighbours may have to wait for room."""
_RECORD = np.dtype(
    [
        ("length", np.int64),
        ("cached", np.int64),
        ("prompt", np.int64),
        ("admitted", np.int64),
        ("released", np.int64),
        ("computed", np.int64),
        ("temperature", np.float32),
        ("top_p", np.float64),
        ("top_k", np.int64),
        ("seed", np.uint64),
    ]
)


class RowTable:
    """Columns indexed by row: `tokens[row, :length]`, with KV for the first `cached` tokens.

    `requests` belong to the running rows, in row order. Any call may move a request to another row.
    `admitted` rises with each admission, so the smallest is the oldest request.
    """

    def __init__(self, kv: KvCache) -> None:
        self.kv = kv
        self.requests: list[Request] = []
        self.used = 0
        self.tokens: npt.NDArray[np.int32] = np.zeros((kv.max_rows, kv.max_length), np.int32)
        self._records = np.zeros(kv.max_rows, _RECORD)
        self.length: npt.NDArray[np.int64] = self._records["length"]
        self.cached: npt.NDArray[np.int64] = self._records["cached"]
        self.admitted: npt.NDArray[np.int64] = self._records["admitted"]
        self._released: npt.NDArray[np.int64] = self._records["released"]
        self._computed: npt.NDArray[np.int64] = self._records["computed"]
        self._admissions = 0
        self._releases = 0

    @property
    def running(self) -> int:
        """Count of running rows."""
        return len(self.requests)

    def admit(self, request: Request) -> int:
        """Give the request the first row behind the running ones.

        Returns how many of its tokens already have KV there.
        """
        reused = self._place(request.tokens)
        self._admissions += 1
        row = self.running
        length = len(request.tokens)
        sampling = request.sampling
        self.requests.append(request)
        self.tokens[row, :length] = request.tokens
        self._records[row] = (
            *(length, reused, request.prompt_length, self._admissions, 0, request.computed),
            *(sampling.temperature, sampling.top_p, sampling.top_k, request.seed),
        )
        return reused

    def has_room(self, tokens: int) -> bool:
        """Return whether a request of so many tokens fits beside the running ones, with growth."""
        longest = max(tokens, int(self.length[: self.running].max(initial=0)))
        needed = min(longest + _GROWTH, self.kv.max_length)
        return (self.running + 1) * needed <= self.kv.max_tokens

    def is_too_long(self) -> bool:
        """Return whether the running rows no longer fit: the newest must wait."""
        return self.running * int(self.length[: self.running].max(initial=0)) > self.kv.max_tokens

    def make_room(self, rows: int = 0, tokens: int = 0) -> None:
        """Make room for the running rows, and for so many further rows with so many tokens.

        Finished rows that take up this room are forgotten, first those that ended long ago.
        """
        tokens = max(tokens, int(self.length[: self.running].max(initial=0)))
        while True:
            wanted = min(self.used + rows, self.kv.max_rows)
            longest = max(tokens, int(self.cached[: self.used].max(initial=0)))
            if self.used == self.running or wanted * longest <= self.kv.max_tokens:
                break
            self.used -= 1
        self.kv.reserve(wanted, longest)

    def copy_prefix(self, row: int) -> tuple[int, int]:
        """Copy KV that a running row lacks from another row.

        Returns that row and how many tokens' KV was copied, 0 if no row has any. The last token's
        KV is copied only if both rows have the same tokens, so that their next logits are the same.
        """
        cached = int(self.cached[row])
        length = int(self.length[row])
        donor, common = self._longest_prefix(self.tokens[row, :length])
        if common == length != self.length[donor]:
            common -= 1
        if common <= cached:
            return row, 0
        self.kv.copy(donor, row, cached, common)
        self.cached[row] = common
        return donor, common - cached

    def release(self, row: int) -> None:
        """End a running row: its KV is kept, the last running row takes its place."""
        self._releases += 1
        self._released[row] = self._releases
        self.swap(row, self.running - 1)
        self.requests.pop()

    def swap(self, row: int, other: int) -> None:
        """Exchange two rows with all they hold: both run, or neither."""
        if row == other:
            return
        pair = [row, other]
        swapped = [other, row]
        cached = int(self.cached[pair].max())
        if cached:
            self.kv.swap(row, other, cached)
        length = int(self.length[pair].max())
        self.tokens[pair, :length] = self.tokens[swapped, :length]
        self._records[pair] = self._records[swapped]
        if row < self.running:
            requests = self.requests
            requests[row], requests[other] = requests[other], requests[row]

    def invalidate(self) -> None:
        """Declare all KV invalid: running rows keep their tokens, finished ones are forgotten."""
        np.maximum(self._computed, self.cached, out=self._computed)
        self.cached[:] = 0
        self.used = self.running

    def pending(self) -> npt.NDArray[np.int64]:
        """Return for each running row how many of its tokens have no KV yet: 1 while decoding."""
        return self.length[: self.running] - self.cached[: self.running]

    def computed_before(self, rows: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> int:
        """Return how many of these rows' next `sizes` tokens had KV once, here or elsewhere.

        They lack it now: new weights made it invalid, or another engine has it.
        """
        cached = self.cached[rows]
        return int((np.minimum(self._computed[rows], cached + sizes) - cached).clip(min=0).sum())

    def append(self, rows: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]) -> None:
        """Add one sampled token to each of these rows."""
        self.tokens[rows, self.length[rows]] = tokens
        self.length[rows] += 1

    def sampling(self, rows: npt.NDArray[np.int64]) -> SamplingBatch:
        """Return the parameters for sampling the next token in each of these rows."""
        records = self._records[rows]
        return SamplingBatch(
            temperature_B=records["temperature"],
            top_p_B=records["top_p"],
            top_k_B=records["top_k"],
            seed_B=records["seed"],
            offset_B=records["length"] - records["prompt"],
        )

    def _place(self, tokens: npt.NDArray[np.int32]) -> int:
        """Bring a row with all reusable KV behind the running rows; return how many tokens' KV."""
        # Without the last token: its logits are what the request needs a pass for.
        donor, reused = self._longest_prefix(tokens[:-1])
        if donor >= self.running and reused == self.cached[donor]:
            target = donor  # all of a finished row: continue in place
        else:
            # The donor still runs, or holds more than this prompt continues. Copy its KV, unless
            # the spare row is the donor itself.
            target = self._spare()
            if reused and target != donor:
                self.kv.copy(donor, target, 0, reused)
        self.cached[target] = reused
        self.swap(target, self.running)
        return reused

    def _longest_prefix(self, tokens: npt.NDArray[np.int32]) -> tuple[int, int]:
        """Return the row whose KV covers most of these first tokens, and how many.

        (-1, 0) if no row covers any.
        """
        cached = self.cached[: self.used]
        length = min(len(tokens), int(cached.max(initial=0)))
        if length == 0:
            return -1, 0
        common = np.minimum(common_prefix(self.tokens[: self.used], tokens[:length]), cached)
        # Among equals, the last: a finished row needs no copy.
        donor = self.used - 1 - int(common[::-1].argmax())
        return (donor, int(common[donor])) if common[donor] else (-1, 0)

    def _spare(self) -> int:
        """Return a row never used, else the one released longest ago."""
        if self.used < self.kv.max_rows:
            self.used += 1
            self.length[self.used - 1] = self.cached[self.used - 1] = 0
            return self.used - 1
        return self.running + int(self._released[self.running : self.used].argmin())


def common_prefix(
    tokens_RL: npt.NDArray[np.int32], tokens: npt.NDArray[np.int32]
) -> npt.NDArray[np.int64]:
    """Return for each row how many first tokens it shares with `tokens`."""
    length = len(tokens)
    equal = tokens_RL[:, :length] == tokens
    return np.where(equal.all(axis=1), length, equal.argmin(axis=1))
