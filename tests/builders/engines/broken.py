"""Engines that break a promise, each in one way, over one that keeps them all."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from seamlessflow.producers.rollout.engine.contract import (
    ChunkCallback,
    ChunkSpan,
    Engine,
    EngineHealth,
    PauseMode,
    SamplingParams,
    TokenChunk,
)
from seamlessflow.producers.rollout.engine.errors import RequestInvalid
from seamlessflow.producers.rollout.scripted_engine import Script


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    completion: bytes
    sampling: SamplingParams
    on_chunk: ChunkCallback


class Wrapped:
    """An engine that passes all calls on, requests as `changed`; `submitted` counts them."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner
        self.submitted = 0

    def changed(self, asked: Asked) -> Asked:
        """Return the request for the engine inside instead of the one asked."""
        return asked

    @property
    def logprob_tolerance(self) -> float:
        return self.inner.logprob_tolerance

    def submit(
        self,
        request_id: str,
        prompt: bytes,
        completion: bytes,
        sampling: SamplingParams,
        on_chunk: ChunkCallback,
        computed: int = 0,
    ) -> None:
        self.submitted += 1
        asked = self.changed(Asked(completion, sampling, on_chunk))
        changed = asked.completion, asked.sampling, asked.on_chunk
        self.inner.submit(request_id, prompt, *changed, computed)

    def abort(self, request_id: str | None) -> None:
        self.inner.abort(request_id)

    def pause(self, mode: PauseMode) -> None:
        self.inner.pause(mode)

    def resume(self) -> None:
        self.inner.resume()

    def load_weights(self, directory: Path, version: int) -> None:
        self.inner.load_weights(directory, version)

    def sleep(self) -> int:
        return self.inner.sleep()

    def wake(self) -> None:
        self.inner.wake()

    def health(self) -> EngineHealth:
        return self.inner.health()

    def close(self) -> None:
        self.inner.close()


class Altered(Wrapped):
    """An engine whose chunks go through `alter`; a chunk for which it returns None is lost."""

    def __init__(self, inner: Engine, alter: Callable[[TokenChunk], TokenChunk | None]) -> None:
        super().__init__(inner)
        self._alter = alter

    def changed(self, asked: Asked) -> Asked:
        def altered(chunk: TokenChunk) -> None:
            if (instead := self._alter(chunk)) is not None:
                asked.on_chunk(instead)

        return replace(asked, on_chunk=altered)


def without_logprobs(chunk: TokenChunk) -> TokenChunk:
    return replace(chunk, logprobs=b"")


def without_the_likely(chunk: TokenChunk) -> TokenChunk:
    return replace(chunk, top_ids=b"", top_logprobs=b"")


def not_a_number(chunk: TokenChunk) -> TokenChunk:
    logprobs = np.full(len(chunk.token_ids) // 4, np.nan, "<f4")
    return replace(chunk, logprobs=logprobs.tobytes())


def probabilities(chunk: TokenChunk) -> TokenChunk:
    """Report probabilities instead of their logarithms."""
    return replace(chunk, logprobs=np.exp(np.frombuffer(chunk.logprobs, "<f4")).tobytes())


def without_spans(chunk: TokenChunk) -> TokenChunk:
    return replace(chunk, spans=())


def of_another_version(chunk: TokenChunk) -> TokenChunk:
    return replace(chunk, spans=tuple(ChunkSpan(span.start, 9) for span in chunk.spans))


def spans_of_the_chunk(chunk: TokenChunk) -> TokenChunk:
    """Count span starts in the chunk instead of in the completion."""
    return replace(chunk, spans=tuple(ChunkSpan(0, span.version) for span in chunk.spans))


def shifted_ids(chunk: TokenChunk) -> TokenChunk:
    return replace(chunk, token_ids=_next(chunk.token_ids))


def shifted_vocabulary(chunk: TokenChunk) -> TokenChunk:
    return replace(chunk, token_ids=_next(chunk.token_ids), top_ids=_next(chunk.top_ids))


def offsets_with_gaps(chunk: TokenChunk) -> TokenChunk:
    shift = chunk.offset + 1
    return replace(
        chunk, offset=shift, spans=tuple(ChunkSpan(shift, s.version) for s in chunk.spans)
    )


def half_a_token(chunk: TokenChunk) -> TokenChunk:
    return replace(chunk, token_ids=chunk.token_ids[:-1])


def nothing(chunk: TokenChunk) -> None:
    """Deliver nothing, as an engine that hangs."""


def endless(chunk: TokenChunk) -> TokenChunk:
    return replace(chunk, finish_reason=None)


def always_stopped(chunk: TokenChunk) -> TokenChunk:
    return replace(chunk, finish_reason=chunk.finish_reason and "stop")


def never_stopped(chunk: TokenChunk) -> TokenChunk:
    return replace(chunk, finish_reason=chunk.finish_reason and "length")


def unnormalised(chunk: TokenChunk) -> TokenChunk:
    """Report logits instead of log-probabilities."""
    logprobs = np.frombuffer(chunk.logprobs, "<f4") / 100
    tops = np.frombuffer(chunk.top_logprobs, "<f4") / 100
    return replace(chunk, logprobs=logprobs.tobytes(), top_logprobs=tops.tobytes())


def _next(ids: bytes) -> bytes:
    return (np.frombuffer(ids, "<i4") + 1).astype("<i4").tobytes()


class Raw(Wrapped):
    """An engine that reports log-probabilities at temperature 1, whatever it sampled at."""

    def changed(self, asked: Asked) -> Asked:
        temperature, top = asked.sampling.temperature, asked.sampling.top_logprobs

        def raw(chunk: TokenChunk) -> None:
            rows = np.frombuffer(chunk.top_logprobs, "<f4").reshape(-1, top) * temperature
            total = np.log(np.exp(rows).sum(axis=1))
            sampled = np.frombuffer(chunk.logprobs, "<f4") * temperature - total
            logprobs, tops = sampled.astype("<f4"), (rows - total[:, None]).astype("<f4")
            raw_chunk = replace(chunk, logprobs=logprobs.tobytes(), top_logprobs=tops.tobytes())
            asked.on_chunk(raw_chunk)

        return asked if temperature in (0, 1) else replace(asked, on_chunk=raw)


class Forgetful(Wrapped):
    """An engine that samples as if there were no completion yet."""

    def changed(self, asked: Asked) -> Asked:
        done = len(asked.completion) // 4

        def moved(chunk: TokenChunk) -> None:
            spans = tuple(ChunkSpan(done + span.start, span.version) for span in chunk.spans)
            asked.on_chunk(replace(chunk, offset=done + chunk.offset, spans=spans))

        rest = replace(asked.sampling, max_tokens=asked.sampling.max_tokens - done)
        return Asked(b"", rest, moved)


@dataclass(frozen=True)
class BreakingScript(Script):
    """A script at whose token `breaks_at` the engine fails."""

    breaks_at: int = 0

    def tokens(self, start: int, end: int, stop_token_ids: tuple[int, ...]) -> bytes:
        if end > self.breaks_at:
            raise ArithmeticError(f"scripted to break at token {self.breaks_at}")
        return super().tokens(start, end, stop_token_ids)


class Unstoppable(Wrapped):
    """An engine that ignores stop tokens."""

    def changed(self, asked: Asked) -> Asked:
        return replace(asked, sampling=replace(asked.sampling, stop_token_ids=()))


class Refusing(Wrapped):
    """An engine that refuses every request."""

    def changed(self, asked: Asked) -> Asked:
        raise RequestInvalid("any", "no place")


class Deaf(Wrapped):
    """An engine that ignores aborts."""

    def abort(self, request_id: str | None) -> None:
        pass


class Stale(Wrapped):
    """An engine that has other weights than it was given."""

    def health(self) -> EngineHealth:
        return replace(self.inner.health(), version=1)
