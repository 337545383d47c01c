"""An engine that samples given tokens and records its requests and answers.

The oracle trusts this record, since no other part of the system writes to it. Each sampled token
has a log-prob of its own, by which it is identified everywhere.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from seamlessflow.producers.rollout.engine.contract import (
    ChunkCallback,
    ChunkSpan,
    EngineHealth,
    FinishReason,
    PauseMode,
    SamplingParams,
    TokenChunk,
)
from seamlessflow.schemas.tokens import pack, unpack

Author = Callable[["Generation"], list[int]]
"""The tokens that a generation would sample if nothing stopped it."""
Heard = Callable[["Generation"], None]


@dataclass(frozen=True)
class Sampled:
    """A sampled token; no other token has its `logprob`."""

    token: int
    logprob: float
    version: int


@dataclass
class Generation:
    """One request to an engine, and the tokens sampled for it."""

    request_id: str
    prompt: list[int]
    prefix: list[int]
    """Completion tokens that it was to go on from."""
    sampling: SamplingParams
    on_chunk: ChunkCallback
    to_come: list[int] = field(default_factory=list)
    sampled: list[Sampled] = field(default_factory=list)
    delivered: int = 0
    """Number of tokens of `sampled` that were delivered."""

    @property
    def length(self) -> int:
        """Return the length of the completion."""
        return len(self.prefix) + len(self.sampled)

    @property
    def finish(self) -> FinishReason | None:
        """Return the finish reason, or None if there is more to sample."""
        last = [*self.prefix[-1:], *(sample.token for sample in self.sampled[-1:])][-1:]
        if last and last[0] in self.sampling.stop_token_ids:
            return "stop"
        return "length" if self.length >= self.sampling.max_tokens else None


class RecordedEngine:
    """One engine; `heard` is called with every generation."""

    logprob_tolerance = 0.0

    def __init__(self, version: int, author: Author, numbers: Iterator[int], heard: Heard) -> None:
        self.version = version
        self.running: dict[str, Generation] = {}
        self._author = author
        self._numbers = numbers
        self._heard = heard

    def submit(
        self,
        request_id: str,
        prompt: bytes,
        completion: bytes,
        sampling: SamplingParams,
        on_chunk: ChunkCallback,
        computed: int = 0,
    ) -> None:
        """Add a generation; it samples nothing until `sample`."""
        asked = Generation(request_id, unpack(prompt), unpack(completion), sampling, on_chunk)
        asked.to_come = self._author(asked)
        self._heard(asked)
        self.running.setdefault(request_id, asked)

    def sample(self, asked: Generation, count: int, tell: bool) -> None:
        """Sample tokens; with `tell`, and always at the end, deliver all that are not delivered."""
        while count and asked.finish is None:
            token = asked.to_come.pop(0) if asked.to_come else asked.sampling.stop_token_ids[0]
            logprob = -float(next(self._numbers))
            asked.sampled.append(Sampled(token, logprob, self.version))
            count -= 1
        if asked.finish is not None:
            del self.running[asked.request_id]
        if tell or asked.finish is not None:
            self._tell(asked, asked.finish)

    def fail(self) -> None:
        """Abort all generations."""
        for asked in list(self.running.values()):
            self.abort(asked.request_id)

    def abort(self, request_id: str | None) -> None:
        """Abort one generation."""
        asked = self.running.pop(request_id or "", None)
        if asked is not None:
            self._tell(asked, None)
            asked.on_chunk(TokenChunk(asked.length, b"", b"", (), "abort"))

    def _tell(self, asked: Generation, reason: FinishReason | None) -> None:
        new, start = asked.sampled[asked.delivered :], len(asked.prefix) + asked.delivered
        asked.delivered = len(asked.sampled)
        spans: list[ChunkSpan] = []
        for place, token in enumerate(new, start):
            if not spans or spans[-1].version != token.version:
                spans.append(ChunkSpan(place, token.version))
        logprobs = np.array([sample.logprob for sample in new], "<f4").tobytes()
        ids = pack([sample.token for sample in new])
        if new or reason is not None:
            asked.on_chunk(TokenChunk(start, ids, logprobs, tuple(spans), reason))

    def pause(self, mode: PauseMode) -> None:
        """Do nothing: nothing runs by itself."""

    def resume(self) -> None:
        """Do nothing: nothing runs by itself."""

    def load_weights(self, directory: Path, version: int) -> None:
        """Sample under this version from now on."""
        self.version = version

    def sleep(self) -> int:
        """Do nothing: the engine holds no memory."""
        return 0

    def wake(self) -> None:
        """Do nothing: the engine holds no memory."""

    def health(self) -> EngineHealth:
        """Return the health, which is always good."""
        return EngineHealth(self.version, 0, 0, 0, 0, False, False, None, 0, 0, 0, 0.0)

    def close(self) -> None:
        """Do nothing: the engine has no thread."""
