"""An engine that does nothing by itself: tests look at its calls and deliver the chunks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from seamlessflow.producers.rollout.engine.contract import (
    ChunkCallback,
    EngineHealth,
    PauseMode,
    SamplingParams,
)
from seamlessflow.schemas.tokens import unpack

Calls = list[tuple[object, ...]]


@dataclass
class Submitted:
    """One request."""

    prompt: list[int]
    completion: list[int]
    sampling: SamplingParams
    on_chunk: ChunkCallback


@dataclass
class ManualEngine:
    """`calls` is everything but submissions; `refusal` is raised by the next submit."""

    version: int = 0
    logprob_tolerance: float = 0.0
    submitted: dict[str, Submitted] = field(default_factory=dict)
    calls: Calls = field(default_factory=list)
    refusal: Exception | None = None
    before: Callable[[str], None] = lambda call: None

    def submit(
        self,
        request_id: str,
        prompt: bytes,
        completion: bytes,
        sampling: SamplingParams,
        on_chunk: ChunkCallback,
        computed: int = 0,
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        asked = Submitted(unpack(prompt), unpack(completion), sampling, on_chunk)
        self.submitted[request_id] = asked

    def abort(self, request_id: str | None) -> None:
        self._called("abort", request_id)

    def pause(self, mode: PauseMode) -> None:
        self._called("pause", mode)

    def resume(self) -> None:
        self._called("resume")

    def load_weights(self, directory: Path, version: int) -> None:
        self._called("load_weights", str(directory), version)
        self.version = version

    def sleep(self) -> int:
        self._called("sleep")
        return 1_234

    def wake(self) -> None:
        self._called("wake")

    def health(self) -> EngineHealth:
        return EngineHealth(self.version, 0, 0, 0, 0, False, False, None, 0, 0, 0, 0.0)

    def close(self) -> None:
        self._called("close")

    def _called(self, *call: object) -> None:
        self.before(str(call[0]))
        self.calls.append(call)
