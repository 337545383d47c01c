"""A request under test: records its chunks and can hold the engine at an exact token."""

import threading
from collections.abc import Sequence

import numpy as np

from seamlessflow.producers.rollout.engine.contract import (
    Engine,
    PauseMode,
    SamplingParams,
    TokenChunk,
)
from tests.waiting import until

DEADLINE_S = 120.0


def as_bytes(tokens: Sequence[int]) -> bytes:
    """Return token ids in the form that engines accept."""
    return np.array(tokens, "<i4").tobytes()


class Generation:
    """One request and its chunks. With `hold_at`, blocks the engine once so many tokens came."""

    def __init__(
        self,
        engine: Engine,
        prompt: Sequence[int],
        sampling: SamplingParams,
        request_id: str = "request",
        completion: Sequence[int] = (),
        hold_at: int | None = None,
    ) -> None:
        self.engine = engine
        self.prompt = list(prompt)
        self.completion = list(completion)
        self.chunks: list[TokenChunk] = []
        self.logprobs: list[float] = []
        self.tops: list[dict[int, float]] = []
        """The most likely tokens beside each, most likely first."""
        self._top = sampling.top_logprobs
        self._hold_at = hold_at
        self._held = threading.Event()
        self._let_go = threading.Event()
        self._finished = threading.Event()
        engine.submit(request_id, as_bytes(prompt), as_bytes(completion), sampling, self._take)

    @property
    def tokens(self) -> list[int]:
        """Return prompt and completion."""
        return self.prompt + self.completion

    @property
    def versions(self) -> list[int]:
        """The version of each token that this engine sampled."""
        return [span.version for chunk in self.chunks for span in chunk.spans]

    def finish(self) -> str | None:
        """Wait for the last chunk; returns its reason."""
        assert self._finished.wait(DEADLINE_S), f"{len(self.completion)} tokens, no end"
        return self.chunks[-1].finish_reason

    def wait_held(self) -> None:
        assert self._held.wait(DEADLINE_S), "the token to hold at did not come"

    def let_go(self) -> None:
        self._let_go.set()

    def pause_when_held(self, mode: PauseMode) -> None:
        """Pause the engine so that exactly `hold_at` tokens have come when it stands."""
        self.wait_held()
        queued = self.engine.health().waiting  # commands count among them
        pausing = threading.Thread(target=self.engine.pause, args=(mode,))
        pausing.start()
        until(lambda: self.engine.health().waiting > queued)
        self.let_go()
        pausing.join(DEADLINE_S)
        assert self.engine.health().paused

    def _take(self, chunk: TokenChunk) -> None:
        ids = np.frombuffer(chunk.token_ids, "<i4").tolist()
        assert chunk.offset == len(self.completion), "a hole or an overlap"
        assert not self._finished.is_set(), "a chunk after the last one"
        assert [span.start for span in chunk.spans] == ([chunk.offset] if ids else [])
        self.completion += ids
        self.logprobs += np.frombuffer(chunk.logprobs, "<f4").tolist()
        self.tops += _rows(chunk, len(ids), self._top)
        self.chunks.append(chunk)
        if len(self.completion) == self._hold_at:
            self._held.set()
            self._let_go.wait(DEADLINE_S)
        if chunk.finish_reason is not None:
            self._finished.set()


def _rows(chunk: TokenChunk, tokens: int, top: int) -> list[dict[int, float]]:
    shape = (tokens, top)
    ids = np.frombuffer(chunk.top_ids, "<i4").reshape(shape).tolist()
    logprobs = np.frombuffer(chunk.top_logprobs, "<f4").reshape(shape).tolist()
    return [dict(zip(*row, strict=True)) for row in zip(ids, logprobs, strict=True) if top]
