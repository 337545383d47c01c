"""A dispatch as the engine's thread and the main loop share it."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from seamlessflow.infra.kafka.client import Headers
from seamlessflow.infra.telemetry.tracing import Span
from seamlessflow.producers.rollout.engine.contract import TokenChunk
from seamlessflow.producers.rollout.turns.dispatch import Dispatch


@dataclass(eq=False, slots=True)
class LiveDispatch:
    """A dispatch and its chunks. The engine's thread calls `on_chunk`, the main loop all else.

    Chunks that are not urgent wait here until the dispatch is due, so that a token does not cost
    the main loop a wake-up.
    """

    dispatch: Dispatch
    headers: Headers
    span: Span
    _wake: Callable[["LiveDispatch"], None]
    request_id: str = field(init=False)
    ended: bool = False
    """True once the last record is written."""
    finished: bool = False
    """True once the engine has delivered the last chunk."""
    _chunks: deque[TokenChunk] = field(default_factory=deque)

    def __post_init__(self) -> None:
        request = self.dispatch.request
        self.request_id = f"{request.turn_id}/{request.dispatch}"

    def on_chunk(self, chunk: TokenChunk) -> None:
        """Keep a chunk; wake the main loop if it must act now. On the engine's thread."""
        # Appended before the wake-up: the main loop may run at once. A deque needs no lock.
        self._chunks.append(chunk)
        if chunk.finish_reason is not None:
            self.finished = True
            self._wake(self)
        elif self.dispatch.urgent:
            self._wake(self)

    def new_chunks(self) -> Iterator[TokenChunk]:
        """Yield the chunks since the last call."""
        while self._chunks:
            yield self._chunks.popleft()
