"""An engine in this process: continuous batching over any `transformers` causal model.

For a CPU, for tests and for the quick start; the GPU engine is vLLM. This is its outside: methods
check what they can in the caller's thread and post the rest to the engine's own (`EngineLoop`).
"""

import contextlib
import secrets
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from producers.rollout.engine.commands import CommandQueue
from producers.rollout.engine.contract import (
    ChunkCallback,
    EngineHealth,
    PauseMode,
    SamplingParams,
    logprob_tolerance,
)
from producers.rollout.engine.errors import EngineStateInvalid
from producers.rollout.engine.request import Request
from producers.rollout.engine.thread import EngineThread
from producers.rollout.torch_engine.batching import Batch
from producers.rollout.torch_engine.checkpoint import read_weights
from producers.rollout.torch_engine.compatibility import plan_cache
from producers.rollout.torch_engine.forward import Forward
from producers.rollout.torch_engine.loop import EngineLoop


@dataclass(frozen=True, slots=True)
class TorchEngineSettings:
    """`max_length` is the context limit (None: the model's own); `kv_bytes` bounds all KV memory.

    `max_slots` beyond `max_running` hold the KV of finished requests for prompts that go on from
    them. `threads` is torch's intra-op thread count, for the whole process (None: leave it).
    """

    device: str = "cpu"
    dtype: str = "float32"
    max_length: int | None = None
    max_running: int = 32
    max_slots: int = 64
    kv_bytes: int = 4 * 2**30
    prefill_tokens: int = 1024
    threads: int | None = None
    deadline_s: float = 300.0


class TorchEngine:
    """See `producers.rollout.engine.contract.Engine` for what every method promises."""

    def __init__(
        self, model: PreTrainedModel, settings: TorchEngineSettings, version: int = 0
    ) -> None:
        """Takes over `model`, whose weights are policy `version`. Raises `ModelUnsupported`."""
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        module: torch.nn.Module = model  # whose `to` is typed
        module.train(False).requires_grad_(False)
        module.to(device=settings.device, dtype=getattr(torch, settings.dtype))
        self._dtype = settings.dtype
        self._vocabulary = int(model.config.get_text_config().vocab_size)
        self._commands = CommandQueue()
        kv = plan_cache(model, settings.max_length, settings.max_slots, settings.kv_bytes)
        batch = Batch(Forward(model, kv), version, settings.max_running, settings.prefill_tokens)
        self._loop = EngineLoop(model, kv, batch, self._commands)
        self._thread = EngineThread(
            "torch-engine", settings.deadline_s, self._loop.run, self._commands.put
        )

    @classmethod
    def from_directory(
        cls, directory: Path, settings: TorchEngineSettings, version: int = 0
    ) -> "TorchEngine":
        """An engine for the Hugging Face model in a local directory (safetensors only)."""
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        model = AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=getattr(torch, settings.dtype),
            local_files_only=True,
            use_safetensors=True,
        )
        return cls(model, settings, version)

    @property
    def logprob_tolerance(self) -> float:
        return logprob_tolerance(self._dtype)

    def submit(
        self,
        request_id: str,
        prompt: bytes,
        completion: bytes,
        sampling: SamplingParams,
        on_chunk: ChunkCallback,
    ) -> None:
        self._loop.state.require_working("submit")
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        request = Request.of(request_id, prompt, completion, sampling, seed, on_chunk)
        request.check(self._vocabulary, self._loop.kv.max_length)
        self._thread.post("submit", lambda: self._loop.submit(request))

    def abort(self, request_id: str | None) -> None:
        with contextlib.suppress(EngineStateInvalid):  # closed: every request has ended
            self._thread.post("abort", lambda: self._loop.abort(request_id))

    def pause(self, mode: PauseMode) -> None:
        self._thread.ask("pause", lambda: self._loop.pause(mode))

    def resume(self) -> None:
        self._thread.ask("resume", self._loop.resume)

    def load_weights(self, directory: Path, version: int) -> None:
        self._thread.ask("load_weights", self._loop.state.require_loadable)
        tensors = read_weights(directory, self._loop.model.state_dict())
        self._thread.ask("load_weights", lambda: self._loop.take_weights(tensors, version))

    def sleep(self) -> int:
        return self._thread.ask("sleep", self._loop.sleep)

    def wake(self) -> None:
        self._thread.ask("wake", self._loop.wake)

    def health(self) -> EngineHealth:
        loop, batch = self._loop, self._loop.batch
        return EngineHealth(
            version=batch.version,
            running=batch.slots.running,
            waiting=len(batch.waiting) + len(self._commands),
            kv_slots=loop.kv.max_slots,
            kv_bytes=loop.kv.allocated(),
            paused=loop.state.paused,
            asleep=loop.state.asleep,
            error=loop.state.error,
            failed_callbacks=loop.failed_callbacks,
            sampled_tokens=batch.sampled_tokens,
            reused_tokens=batch.reused_tokens,
            busy_seconds=loop.busy_seconds,
        )

    def close(self) -> None:
        self._thread.close(self._loop.stop)
