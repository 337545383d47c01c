"""An engine in this process: continuous batching over any `transformers` causal model.

It is for a CPU, for tests and for the quick start; the GPU engine is vLLM. Requests are checked in
the caller's thread. Only the engine's own thread touches the model, the KV cache and live requests.
"""

import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from seamlessflow.infra.host import device_named, free_host_bytes
from seamlessflow.infra.weights.manifest import base_of
from seamlessflow.producers.rollout.engine.contract import (
    ChunkCallback,
    EngineHealth,
    SamplingParams,
    logprob_tolerance,
)
from seamlessflow.producers.rollout.engine.request import Request, RequestChunk, last_chunk
from seamlessflow.producers.rollout.engine.threaded_engine import ThreadedEngine
from seamlessflow.producers.rollout.torch_engine.batching import ContinuousBatch
from seamlessflow.producers.rollout.torch_engine.compatibility import plan_cache
from seamlessflow.producers.rollout.torch_engine.forward import CachedForward
from seamlessflow.producers.rollout.torch_engine.packed_layers import PackedLayers
from seamlessflow.producers.rollout.torch_engine.weights import (
    AdaptedLayers,
    Adapter,
    read_adapter,
    read_weights,
)


@dataclass(frozen=True, slots=True)
class TorchEngineSettings:
    """The engine's settings; `max_length` is the context limit (None: the model's own).

    `kv_bytes` bounds all KV memory. Rows beyond `max_running` hold the KV of finished requests for
    prompts that continue them. `threads` is torch's intra-op thread count, for the whole process
    (None: unchanged).
    """

    device: str = "cpu"
    dtype: str = "float32"
    max_length: int | None = None
    max_running: int = 32
    max_rows: int = 64
    kv_bytes: int = 4 * 2**30
    prefill_tokens: int = 1024
    threads: int | None = None
    deadline_s: float = 300.0


@dataclass(frozen=True, slots=True)
class _NewWeights:
    """Checked weights on the host: what to copy into the model, and the adapter on it."""

    tensors: Mapping[str, Tensor]
    adapter: Adapter | None
    base: str | None


class TorchEngine(ThreadedEngine):
    """See `Engine` in `producers/rollout/engine/contract.py` for what every method promises."""

    def __init__(
        self, model: PreTrainedModel, settings: TorchEngineSettings, version: int = 0
    ) -> None:
        """Take over `model`, whose weights are policy `version`. Raises `ModelUnsupported`."""
        self._threads = settings.threads
        self._use_threads()
        module: torch.nn.Module = model  # its `to` is typed
        module.train(False).requires_grad_(False)
        device = device_named(settings.device, torch.cuda.is_available)
        # cuDNN would plan anew for each length that it has not seen, so for each token.
        torch.backends.cuda.enable_cudnn_sdp(False)
        module.to(device=device, dtype=getattr(torch, settings.dtype))
        self._dtype = settings.dtype
        self._vocabulary = int(model.config.get_text_config().vocab_size)
        kv = plan_cache(model, settings.max_length, settings.max_rows, settings.kv_bytes)
        self._packed = PackedLayers(model)
        self._model = module
        self._device = model.device
        self._kv = kv
        self._batch = ContinuousBatch(
            CachedForward(model, kv), version, settings.max_running, settings.prefill_tokens
        )
        self._layers = AdaptedLayers(module)
        self._base: str | None = None
        """Hash of the base model whose weights the model has; None: it has whole weights."""
        self._busy_s = 0.0
        super().__init__("torch-engine", settings.deadline_s)

    def _use_threads(self) -> None:
        """Let the calling thread compute with `threads` CPU threads: torch sets this by thread."""
        if self._threads is not None:
            torch.set_num_threads(self._threads)

    @classmethod
    def from_directory(
        cls, directory: Path, settings: TorchEngineSettings, version: int = 0
    ) -> "TorchEngine":
        """Build an engine for the Hugging Face model in a local directory (safetensors only)."""
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        base = base_of(directory)
        model = AutoModelForCausalLM.from_pretrained(  # nosec B615 # a local directory
            directory if base is None else base.directory,
            dtype=getattr(torch, settings.dtype),
            local_files_only=True,
            use_safetensors=True,
        )
        engine = cls(model, settings, version)
        if base is not None:
            engine._base = base.hash
            engine._layers.put(read_adapter(directory, engine._model.state_dict()))
        return engine

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
        computed: int = 0,
    ) -> None:
        self.state.require_working("submit")
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        request = Request.from_bytes(
            request_id, prompt, completion, sampling, seed, on_chunk, computed
        )
        request.check(self._vocabulary, self._kv.max_length)
        self._thread.post("submit", lambda: self._accept(request))

    def load_weights(self, directory: Path, version: int) -> None:
        self._thread.ask("load_weights", lambda: self.state.require_paused("load_weights"))
        # Read in the caller's thread: the engine's own answers other calls meanwhile.
        new = self._read(directory)
        self._thread.ask("load_weights", lambda: self._take_weights(new, version))

    def health(self) -> EngineHealth:
        batch = self._batch
        return EngineHealth(
            version=batch.version,
            running=batch.table.running,
            waiting=len(batch.waiting) + len(self._commands),
            kv_rows=self._kv.max_rows,
            kv_bytes=self._kv.allocated(),
            paused=self.state.paused,
            asleep=self.state.asleep,
            error=self.state.error,
            failed_callbacks=self.failed_callbacks,
            sampled_tokens=batch.sampled_tokens,
            reused_tokens=batch.reused_tokens,
            busy_seconds=self._busy_s,
            full_batch_seconds=batch.times.full_batch_s,
            recomputing_seconds=batch.times.recomputing_s,
        )

    @property
    def _has_work(self) -> bool:
        return self._batch.has_work

    def _run(self) -> None:
        self._use_threads()
        with torch.inference_mode():
            super()._run()

    def _advance(self) -> None:
        started = time.perf_counter()
        self._emit(self._batch.advance())
        self._busy_s += time.perf_counter() - started

    def _abort(self, request_id: str | None) -> None:
        self._emit(self._batch.abort(request_id))

    def _abort_all(self) -> None:
        self._batch.table.invalidate()  # so that nothing here touches a device that may be broken
        super()._abort_all()

    def _accept(self, request: Request) -> None:
        if self.state.error is not None:  # it failed after `submit` had looked
            self._emit([(request, last_chunk(request.completed, "abort"))])
        else:
            self._batch.add(request)

    def _emit(self, emissions: Iterable[RequestChunk]) -> None:
        broken = [
            request.request_id
            for request, chunk in emissions
            if not self._deliver(request.request_id, request.on_chunk, chunk)
        ]
        # Only now: the batch must not change before its generator is exhausted.
        for request_id in broken:
            self._batch.abort(request_id)

    def _read(self, directory: Path) -> "_NewWeights":
        """Read and check weights; a base's weights only if the model has another base."""
        base = base_of(directory)
        state = self._model.state_dict()
        if base is None:
            return _NewWeights(read_weights(directory, state), None, None)
        same_base = base.hash == self._base
        tensors = {} if same_base else read_weights(Path(base.directory), state)
        return _NewWeights(tensors, read_adapter(directory, state), base.hash)

    def _take_weights(self, new: "_NewWeights", version: int) -> None:
        """Put checked weights into the model. Raises `EngineStateInvalid`."""
        self.state.require_paused("load_weights")
        try:
            self._packed.put(new.tensors)
            self._layers.put(new.adapter)
            self._base = new.base
        except RuntimeError as error:
            self._fail(error)  # half of the weights may be new: no token may come from them
            raise
        self._batch.version = version
        self._batch.table.invalidate()

    def _free_memory(self) -> int:
        self._batch.table.invalidate()
        self._kv.release()
        # On a CPU the weights stay: the host's memory is where they would go.
        if self._device.type == "cpu":
            return free_host_bytes()
        self._model.to("cpu")
        torch.accelerator.empty_cache()
        cuda = self._device.type == "cuda"
        return int(torch.cuda.mem_get_info(self._device)[0]) if cuda else 0

    def _wake(self) -> None:
        self.state.require_working("wake")
        if self._device.type != "cpu":
            self._model.to(self._device)
        super()._wake()
