"""Continuous batching: which requests run, what the next step computes, and what it emits.

A step admits waiting requests while there is room, runs one forward over rows that have many tokens
without KV (new prompts, continuations, rows whose KV became void; in chunks that fit the token
budget), and one over all rows that decode. Every row gets at most one token a step. Engine thread
only, under `torch.inference_mode`.
"""

from collections import deque
from collections.abc import Iterator

import numpy as np
from torch import Tensor

from producers.rollout.engine.contract import TokenChunk
from producers.rollout.engine.request import NO_TOP, Request, TopTokens, last_chunk, token_chunks
from producers.rollout.torch_engine.forward import Forward
from producers.rollout.torch_engine.passes import Rows, decode, decoding_first, prefill
from producers.rollout.torch_engine.rows import RowTable
from producers.rollout.torch_engine.sampling import most_likely, sample

Emission = tuple[Request, TokenChunk]


class LogitsNotFinite(ArithmeticError):
    """The model gave NaN: its weights or its device are broken."""


class Batch:
    """All live requests. `version` is stamped on every sampled token."""

    def __init__(
        self, forward: Forward, version: int, max_running: int, prefill_tokens: int
    ) -> None:
        self.slots = RowTable(forward.kv)
        self.version = version
        self.waiting: deque[Request] = deque()
        self.sampled_tokens = 0
        self.reused_tokens = 0
        self._forward = forward
        self._limit = forward.kv.max_length
        self._max_running = min(max_running, forward.kv.max_rows)
        self._prefill_tokens = prefill_tokens
        self._live: dict[str, Request] = {}
        self._running: dict[int, Request] = {}
        self._tickets = 0

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    def add(self, request: Request) -> None:
        """Queue a request; one whose id is live is ignored."""
        if request.request_id not in self._live:
            self._live[request.request_id] = request
            self.waiting.append(request)

    def abort(self, request_id: str | None) -> list[Emission]:
        """End one request, or all; unknown ids are ignored."""
        ids = list(self._live) if request_id is None else [request_id]
        requests = [self._live[each] for each in ids if each in self._live]
        return [(request, last_chunk(self._drop(request), "abort")) for request in requests]

    def step(self) -> Iterator[Emission]:
        """Raises `LogitsNotFinite`, and whatever the model's forward raises.

        A generator, so that what was sampled before a pass that raises has been delivered. Nothing
        else here may be called while it is not exhausted.
        """
        yield from self._admit()
        decoding = decoding_first(self.slots)
        if decoding < self.slots.running:
            budget = self._prefill_tokens
            yield from self._emit(*prefill(self.slots, self._forward, decoding, budget))
        if decoding:
            yield from self._emit(*decode(self.slots, self._forward, decoding))

    def _admit(self) -> list[Emission]:
        """Give slots to waiting requests; returns the ends of those with nothing left to sample."""
        ended: list[Emission] = []
        while self.waiting and self.slots.running < self._max_running:
            request = self.waiting.popleft()
            if (reason := request.finished_before_start(self._limit)) is None:
                self._start(request)
            else:
                del self._live[request.request_id]
                offset = len(request.tokens) - request.prompt_length
                ended.append((request, last_chunk(offset, reason)))
        return ended

    def _start(self, request: Request) -> None:
        self._tickets += 1
        request.ticket = self._tickets
        self._running[request.ticket] = request
        self.reused_tokens += self.slots.admit(
            request.ticket, request.tokens, request.prompt_length, request.sampling, request.seed
        )

    def _emit(self, rows: Rows, logits_BV: Tensor) -> list[Emission]:
        """Sample one token for each of these rows, and end the rows that are finished by it."""
        if not rows.size:
            return []
        batch = self.slots.sampling(rows)
        tokens_B, logprobs_B = sample(logits_BV, batch)
        tokens, logprobs = tokens_B.cpu().numpy(), logprobs_B.cpu().numpy()
        if np.isnan(logprobs).any():
            raise LogitsNotFinite(f"the model gives no distribution under version {self.version}")
        self.slots.append(rows, tokens)
        self.sampled_tokens += len(rows)
        requests = [self._running[ticket] for ticket in self.slots.ticket[rows].tolist()]
        offsets = batch.offset_B.tolist()
        tops = _tops(logits_BV, requests)
        chunks = token_chunks(requests, offsets, tokens, logprobs, tops, self.version, self._limit)
        emissions = list(zip(requests, chunks, strict=True))
        for request, chunk in emissions:
            if chunk.finish_reason is not None:
                self._drop(request)
        return emissions

    def _drop(self, request: Request) -> int:
        """Forget a live request; returns the length of its completion."""
        del self._live[request.request_id]
        if self._running.pop(request.ticket, None) is None:
            self.waiting.remove(request)
            return len(request.tokens) - request.prompt_length
        tickets = self.slots.ticket[: self.slots.running]
        row = int(np.flatnonzero(tickets == request.ticket)[0])
        completed = int(self.slots.known[row]) - request.prompt_length
        self.slots.release(row)
        return completed


def _tops(logits_BV: Tensor, requests: list[Request]) -> list[TopTokens]:
    """The most likely tokens of the rows whose requests want to see them."""
    tops = [NO_TOP] * len(requests)
    rows = [row for row, request in enumerate(requests) if request.sampling.top_logprobs]
    if rows:
        counts = [requests[row].sampling.top_logprobs for row in rows]
        ids_RK, logprobs_RK = most_likely(logits_BV[rows], max(counts))
        ids, logprobs = ids_RK.cpu().numpy(), logprobs_RK.cpu().numpy()
        for place, (row, count) in enumerate(zip(rows, counts, strict=True)):
            top_ids, top_logprobs = ids[place, :count], logprobs[place, :count]
            tops[row] = top_ids.astype("<i4").tobytes(), top_logprobs.astype("<f4").tobytes()
    return tops
