"""Continuous batching: which requests run, what the next passes compute, and what they sample.

`advance` has three steps. First, it admits waiting requests while there is room. If the running
ones outgrow the room, the newest wait again. Second, one prefill pass runs over rows with many
tokens without KV, in chunks that fit the token budget. Such rows are new prompts, continuations,
and rows whose KV new weights made invalid. A beginning that several rows share is computed in one
row, and the others copy it. Third, one decode pass runs over the rows that lack only their last
token's KV. The passes see rows and tokens, not requests. Engine thread only, under
`torch.inference_mode`.
"""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seamlessflow.producers.rollout.engine.pass_times import PassTimes
from seamlessflow.producers.rollout.engine.request import (
    NO_TOP,
    Request,
    RequestChunk,
    TopTokens,
    last_chunk,
    token_chunks,
)
from seamlessflow.producers.rollout.torch_engine.forward import PADDING, CachedForward
from seamlessflow.producers.rollout.torch_engine.rows import RowTable, common_prefix
from seamlessflow.producers.rollout.torch_engine.sampling import most_likely, sample
from seamlessflow.schemas.arrays import Int32s, Int64s


class LogitsNotFinite(ArithmeticError):
    """The model gave NaN: its weights or its device are broken."""


@dataclass(frozen=True, slots=True)
class _Prefilled:
    """Rows that after a prefill pass lack only their next token, and that token's logits.

    `again`: the share of computed tokens whose KV was computed before. `reused`: how many tokens
    rows copied instead.
    """

    rows: Int64s
    logits_BV: Tensor
    again: float
    reused: int


class ContinuousBatch:
    """All live requests, waiting or in a row of the table. `version` samples every token."""

    def __init__(
        self, forward: CachedForward, version: int, max_running: int, prefill_tokens: int
    ) -> None:
        self.table = RowTable(forward.kv)
        self.version = version
        self.waiting: deque[Request] = deque()
        self.sampled_tokens = 0
        self.reused_tokens = 0
        self._live: dict[str, Request] = {}
        self._forward = forward
        self._limit = forward.kv.max_length
        self._max_running = min(max_running, forward.kv.max_rows)
        self.times = PassTimes(self._max_running)
        self._prefill_tokens = prefill_tokens

    @property
    def has_work(self) -> bool:
        """True while a request is live."""
        return bool(self._live)

    def add(self, request: Request) -> None:
        """Queue a request; one whose id is live is ignored."""
        if request.request_id not in self._live:
            self._live[request.request_id] = request
            self.waiting.append(request)

    def abort(self, request_id: str | None) -> list[RequestChunk]:
        """End one request, or all; unknown ids are ignored."""
        ids = list(self._live) if request_id is None else [request_id]
        requests = [self._live[each] for each in ids if each in self._live]
        return [(request, last_chunk(self._drop(request), "abort")) for request in requests]

    def advance(self) -> Iterator[RequestChunk]:
        """Run one prefill and one decode pass; a row gets at most one token.

        Raises `LogitsNotFinite`, and whatever the model's forward raises. It is a generator, so
        that a pass that raises does not lose what was sampled before. Call no other method until it
        is exhausted.
        """
        self._make_room()
        yield from self._admit()
        decoding = _decoding_first(self.table)
        if decoding < self.table.running:
            started = time.perf_counter()
            budget = self._prefill_tokens
            done = _prefill(self.table, self._forward, decoding, budget)
            self.reused_tokens += done.reused
            sampled = self._sample(done.rows, done.logits_BV)
            self.times.add_prefill(time.perf_counter() - started, done.again)
            yield from sampled
        # A request that ended in the prefill had its row after the decoding ones: those stay.
        if decoding:
            started = time.perf_counter()
            sampled = self._sample(*_decode(self.table, self._forward, decoding))
            self.times.add_decode(decoding, time.perf_counter() - started)
            yield from sampled

    def _admit(self) -> list[RequestChunk]:
        """Give rows to waiting requests; return the ends of those with nothing left to sample."""
        ended: list[RequestChunk] = []
        while self.waiting and self.table.running < self._max_running:
            request = self.waiting[0]
            if (reason := request.finished_before_start(self._limit)) is not None:
                del self._live[request.request_id]
                ended.append((request, last_chunk(request.completed, reason)))
            elif self.table.has_room(len(request.tokens)):
                self.table.make_room(1, len(request.tokens))
                self.reused_tokens += self.table.admit(request)
            else:
                break
            self.waiting.popleft()
        return ended

    def _make_room(self) -> None:
        """Let the newest running requests wait until the others' KV fits."""
        while self.table.is_too_long():
            row = int(self.table.admitted[: self.table.running].argmax())
            request = self.table.requests[row]
            tokens = self.table.tokens[row, : self.table.length[row]].copy()
            waiting = replace(request, tokens=tokens, computed=int(self.table.cached[row]))
            self.table.release(row)
            self._live[request.request_id] = waiting
            self.waiting.appendleft(waiting)
        self.table.make_room()

    def _sample(self, rows: Int64s, logits_BV: Tensor) -> list[RequestChunk]:
        """Sample one token for each of these rows, and end the requests that are finished by it."""
        if not rows.size:
            return []
        batch = self.table.sampling(rows)
        tokens_B, logprobs_B = sample(logits_BV, batch)
        # One copy to the host for the whole batch, not one a row.
        tokens = tokens_B.cpu().numpy()
        logprobs = logprobs_B.cpu().numpy()
        if np.isnan(logprobs).any():
            raise LogitsNotFinite(f"the model gives no distribution under version {self.version}")
        self.table.append(rows, tokens)
        self.sampled_tokens += len(rows)
        requests = [self.table.requests[row] for row in rows.tolist()]
        offsets = batch.offset_B.tolist()
        tops = _top_tokens(logits_BV, batch.temperature_B, requests)
        chunks = token_chunks(requests, offsets, tokens, logprobs, tops, self.version, self._limit)
        emissions = list(zip(requests, chunks, strict=True))
        for request, chunk in emissions:
            if chunk.finish_reason is not None:
                self._drop(request)
        return emissions

    def _drop(self, request: Request) -> int:
        """Forget a live request; return its completion's length."""
        del self._live[request.request_id]
        if request not in self.table.requests:
            self.waiting.remove(request)
            return request.completed
        row = self.table.requests.index(request)
        completed = int(self.table.length[row]) - request.prompt_length
        self.table.release(row)
        return completed


def _top_tokens(
    logits_BV: Tensor, temperature_B: npt.NDArray[np.float32], requests: list[Request]
) -> list[TopTokens]:
    """Return the most likely tokens for the rows whose requests ask for them."""
    tops = [NO_TOP] * len(requests)
    rows = [row for row, request in enumerate(requests) if request.sampling.top_logprobs]
    if rows:
        counts = [requests[row].sampling.top_logprobs for row in rows]
        ids_RK, logprobs_RK = most_likely(logits_BV[rows], temperature_B[rows], max(counts))
        ids = ids_RK.cpu().numpy()
        logprobs = logprobs_RK.cpu().numpy()
        for place, (row, count) in enumerate(zip(rows, counts, strict=True)):
            top_ids = ids[place, :count]
            top_logprobs = logprobs[place, :count]
            tops[row] = top_ids.astype("<i4").tobytes(), top_logprobs.astype("<f4").tobytes()
    return tops


def _decoding_first(table: RowTable) -> int:
    """Move the running rows that lack one token's KV before the others; return how many."""
    pending = table.pending()
    if (pending == 1).all():
        return len(pending)
    decoding = 0
    for row, tokens in enumerate(pending.tolist()):
        if tokens == 1:
            table.swap(row, decoding)
            decoding += 1
    return decoding


def _prefill(table: RowTable, forward: CachedForward, first: int, budget: int) -> _Prefilled:
    """Give rows from `first` on a chunk of KV: compute the planned rows, then copy to others."""
    rows, width = _arrange(table, first, budget)
    pending = table.pending()[rows]
    sizes = np.minimum(pending, width)
    columns = np.arange(width) - (width - sizes[:, None])
    positions = np.where(columns < 0, PADDING, table.cached[rows, None] + columns)
    ids = table.tokens[rows[:, None], positions.clip(min=0)].astype(np.int64)
    logits_RV = forward(first, ids, positions)
    again = table.computed_before(rows, sizes) / int(sizes.sum())
    table.cached[rows] += sizes
    # By row that lacks only its next token: the row whose logits it uses.
    sources = {row: row for row in rows[sizes == pending].tolist()}
    reused = 0
    for row in range(first + len(rows), table.running):
        source, copied = table.copy_prefix(row)
        reused += copied
        if table.cached[row] == table.length[row]:
            sources[row] = sources[source]
    computed = torch.tensor(list(sources.values()), dtype=torch.int64) - first
    logits_BV = logits_RV[computed.to(logits_RV.device)]
    return _Prefilled(np.array(list(sources), np.int64), logits_BV, again, reused)


def _arrange(table: RowTable, first: int, budget: int) -> tuple[Int64s, int]:
    """Bring the rows that a prefill pass computes to `first`; return them and the pass's width."""
    # The oldest goes first, or a stream of short prompts could keep a long one waiting forever.
    table.swap(first, first + int(table.admitted[first : table.running].argmin()))
    waiting = slice(first, table.running)
    tokens_RL = table.tokens[waiting]
    plan, width = plan_prefill(tokens_RL, table.length[waiting], table.cached[waiting], budget)
    for place, row in enumerate(plan):
        table.swap(first + place, first + row)
    return np.arange(first, first + len(plan)), width


def _decode(table: RowTable, forward: CachedForward, count: int) -> tuple[Int64s, Tensor]:
    """Return the first `count` rows, and the logits [count, vocabulary] after their last tokens."""
    rows = np.arange(count)
    positions = table.cached[:count].copy()
    ids = table.tokens[rows, positions].astype(np.int64)
    logits_BV = forward(0, ids[:, None], positions[:, None])
    table.cached[:count] += 1
    return rows, logits_BV


def plan_prefill(
    tokens_RL: Int32s, length_R: Int64s, cached_R: Int64s, budget: int
) -> tuple[list[int], int]:
    """Return which waiting rows a prefill pass computes, and its width in tokens.

    The rows are in rising order, and the first waiting row is among them. A row is left out if
    another row computes at least half of what it lacks: it copies that afterwards. The padded area,
    rows times width, fits the budget. A first row wider than the budget is taken alone and in
    chunks.
    """
    pending = (length_R - cached_R).tolist()
    rows = [0]
    width = min(pending[0], budget)
    for row in range(1, len(pending)):
        tokens = tokens_RL[row, : length_R[row]]
        shared = np.minimum(common_prefix(tokens_RL[rows], tokens), length_R[rows]).max()
        if 2 * (shared - cached_R[row]) >= pending[row]:
            continue
        wider = max(width, pending[row])
        if (len(rows) + 1) * wider > budget:
            break
        width = wider
        rows.append(row)
    return rows, width
