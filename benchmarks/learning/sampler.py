"""Sampler: the torch engine's continuous batching, driven in the caller's thread.

The engine's own thread would make the order of its passes, and so the last digit of its log-probs,
depend on time. Here equal requests under equal weights give equal tokens and log-probs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from seamlessflow.demo.agent import MAX_TOKENS
from seamlessflow.producers.rollout.engine.contract import SamplingParams, TokenChunk
from seamlessflow.producers.rollout.engine.request import Request
from seamlessflow.producers.rollout.torch_engine.batching import ContinuousBatch
from seamlessflow.producers.rollout.torch_engine.compatibility import plan_cache
from seamlessflow.producers.rollout.torch_engine.forward import CachedForward
from seamlessflow.producers.rollout.torch_engine.weights import read_weights

_KV_BYTES = 256 * 1024**2
_PREFILL_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Prompt:
    """A turn's prompt, int32 bytes, with the seed for its tokens."""

    name: str
    ids: bytes
    seed: int


@dataclass(slots=True)
class Completion:
    """A sampled turn: token ids (int32) and their log-probs (float32)."""

    ids: bytearray = field(default_factory=bytearray)
    logprobs: bytearray = field(default_factory=bytearray)

    def add(self, chunk: TokenChunk) -> None:
        """Append what the engine sampled."""
        self.ids += chunk.token_ids
        self.logprobs += chunk.logprobs


class Sampler:
    """A model that samples turns, many at once."""

    def __init__(
        self,
        directory: Path,
        stops: Sequence[int],
        rows: int,
        max_length: int,
        kv_bytes: int = _KV_BYTES,
    ) -> None:
        """Load the model in a directory, as version 0."""
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(  # nosec B615 # local
            directory, local_files_only=True, dtype=torch.float32
        )
        module: torch.nn.Module = model  # its methods are typed
        module.train(False).requires_grad_(False)
        self._state: Mapping[str, Tensor] = module.state_dict()
        kv = plan_cache(model, max_length, rows, kv_bytes)
        self._batch = ContinuousBatch(CachedForward(model, kv), 0, rows, _PREFILL_TOKENS)
        self._stops = tuple(stops)

    @torch.inference_mode()
    def load(self, directory: Path, version: int) -> None:
        """Take a directory's weights; all keys and values are computed anew."""
        for name, tensor in read_weights(directory, self._state).items():
            self._state[name].copy_(tensor)
        self._batch.version = version
        self._batch.table.invalidate()

    @torch.inference_mode()
    def sample(
        self, prompts: Sequence[Prompt], temperature: float = 1.0, max_tokens: int = MAX_TOKENS
    ) -> list[Completion]:
        """Return each prompt's completion."""
        sampling = SamplingParams(max_tokens, temperature, stop_token_ids=self._stops)
        completions = {prompt.name: Completion() for prompt in prompts}
        # Equal prompts are prefilled once: the others find the first ones in the table.
        firsts = {prompt.ids: prompt for prompt in reversed(prompts)}
        heads = [prompt for prompt in prompts if firsts[prompt.ids] is prompt]
        rest = [prompt for prompt in prompts if firsts[prompt.ids] is not prompt]
        for together in (heads, rest):
            for prompt in together:
                done = completions[prompt.name].add
                arguments = prompt.name, prompt.ids, b"", sampling, prompt.seed
                self._batch.add(Request.from_bytes(*arguments, done))
            self._advance()
        while self._batch.has_work:
            self._advance()
        return [completions[prompt.name] for prompt in prompts]

    def _advance(self) -> None:
        for request, chunk in self._batch.advance():
            request.on_chunk(chunk)
