"""One turn on an engine, with all that it has answered."""

import threading
import time

from seamlessflow.producers.rollout.engine.contract import Engine, SamplingParams, TokenChunk

DEADLINE_S = 600.0


class Turn:
    """A turn that was submitted."""

    def __init__(self, engine: Engine, name: str, prompt: bytes, sampling: SamplingParams) -> None:
        self.chunks: list[TokenChunk] = []
        self.times: list[float] = []
        """Each chunk's moment, in seconds."""
        self._begun, self._ended = threading.Event(), threading.Event()
        engine.submit(name, prompt, b"", sampling, self._take)

    def begun(self) -> "Turn":
        """Wait for the first chunk. Raises `TimeoutError`."""
        return self._after(self._begun, "no token")

    def ended(self) -> "Turn":
        """Wait for the last chunk. Raises `TimeoutError`."""
        return self._after(self._ended, "no end of a turn")

    @property
    def versions(self) -> set[int]:
        """Return the versions that sampled it so far."""
        return {span.version for chunk in self.chunks for span in chunk.spans}

    def _take(self, chunk: TokenChunk) -> None:
        self.times.append(time.perf_counter())
        self.chunks.append(chunk)
        self._begun.set()
        if chunk.finish_reason is not None:
            self._ended.set()

    def _after(self, event: threading.Event, otherwise: str) -> "Turn":
        if not event.wait(DEADLINE_S):
            raise TimeoutError(f"{otherwise} in {DEADLINE_S:g} s")
        return self
