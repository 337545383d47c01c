"""The back end of one device: the model, AdamW and the optimizer step.

Called by the steps through the interface of `backend.py`. While the role is not held, everything is
on the host. N counts the trained tokens of a micro-batch.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from infra.worker.device import device_named, free_host_bytes
from trainer.backends.backend import Computing, Machine, StepInput, unmeasured
from trainer.backends.forward import Forward, check_layout
from trainer.backends.losses.loss import old_policy, token_losses
from trainer.backends.losses.tokens import LossTokens
from trainer.backends.model import DTYPES, load_model, recompute_activations, write_model
from trainer.backends.older_weights import OlderWeights
from trainer.backends.optimizer_state import (
    Files,
    full,
    gathered,
    load_random,
    load_state,
    move_state,
    random_state,
    save_state,
)
from trainer.backends.side.models import SideModels
from trainer.backends.token_sums import TokenSums
from trainer.data.credit.columns import Annotated, Column
from trainer.data.packing import MicroBatch
from trainer.settings import Dtype, TrainerSection

_log = logging.getLogger(__name__)
_MEGABYTE = 1024 * 1024
_LARGEST_SCALE = 2.0**16
_SCALE_STEP = 2.0**4
"""First scale of a float16 loss, and the factor by which the next one is smaller."""


class TorchBackend:
    """A `Backend` (see `backend.py`) on one device.

    `_ranks`, `_placed`, `_whole_weights` and `_merged` are for `FsdpBackend` to override.
    """

    _ranks = 1
    """Processes whose gradients are averaged."""

    def __init__(
        self, model_directory: Path, settings: TrainerSection, computing: Computing = unmeasured
    ) -> None:
        """Load the model on the host. Raise `ModelUnusable`."""
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        torch.manual_seed(settings.seed)
        self._settings = settings
        self._computing = computing
        self._device = torch.device(device_named(settings.device, torch.cuda.is_available))
        self._model = self._placed(load_model(model_directory, settings.master_dtype))
        check_layout(self._model, settings.layout)
        if settings.gradient_checkpointing:
            recompute_activations(self._model)
        self._parameters = dict(self._model.named_parameters())
        self._optimizer = torch.optim.AdamW(
            self._parameters.values(),
            lr=settings.optimizer.lr,
            betas=(settings.optimizer.beta1, settings.optimizer.beta2),
            eps=settings.optimizer.eps,
            weight_decay=settings.optimizer.weight_decay,
        )
        self._side = SideModels(model_directory, settings, self._placed)
        self._snapshot: Files = {}
        self._forward = Forward(self._model)
        self._older = OlderWeights(
            self._model, settings.mismatch_versions + 1, settings.mismatch_memory_mb * _MEGABYTE
        )

    @property
    def dtype(self) -> Dtype:
        return self._settings.weights_dtype or self._settings.dtype

    @property
    def _first_scale(self) -> float:
        """Return the factor of the loss with which a gradient is computed first."""
        return _LARGEST_SCALE if self._settings.compute == "float16" else 1.0

    @property
    def machine(self) -> Machine:
        name = (
            torch.cuda.get_device_name(self._device)
            if self._device.type == "cuda"
            else f"cpu {torch.backends.cpu.get_cpu_capability()}"
        )
        return Machine(name, torch.get_num_threads(), torch.__version__)

    def annotate(self, batches: Sequence[MicroBatch], columns: Sequence[Column]) -> Annotated:
        self._computing(True)
        found = self._side.annotate(batches, columns, self._device, self._autocast, self._forward)
        self._computing(False)
        return found

    def train(self, step: StepInput) -> dict[str, float]:
        return self._train(step, sum(len(batch) for batch in step.micro_batches))

    def gradients(self, step: StepInput) -> Iterator[Mapping[str, Tensor]]:
        """Yield the gradient so far, by parameter, after each micro-batch of a step.

        Before clipping, and without an update.
        """
        scale = self._first_scale
        try:
            for batch in step.micro_batches:
                self._backward(batch, step.version, TokenSums(), scale)
                yield {
                    name: parameter.grad / scale
                    for name, parameter in self._parameters.items()
                    if parameter.grad is not None
                }
        finally:
            self._optimizer.zero_grad(set_to_none=True)

    def state(self) -> Files:
        """Return a copy of weights, optimizer and random state, on the host."""
        return {
            **gathered(self._model, self._optimizer),
            **self._side.state(),
            **random_state(),
        }

    def remember(self, version: int) -> None:
        self._older.remember(version, self._parameters)

    def remembered(self) -> Sequence[int]:
        return self._older.versions()

    def write_weights(self, directory: Path) -> None:
        write_model(self._model, self._whole_weights(), self.dtype, directory)

    def snapshot(self) -> None:
        self._snapshot = self.state()

    def save(self, directory: Path) -> None:
        kept, self._snapshot = self._snapshot, {}
        save_state(directory, kept)

    def load(self, directory: Path | None, version: int) -> None:
        if directory is not None:
            load_state(directory, self._model, self._optimizer)
            self._side.load(directory)
            load_random(directory)
        self._older.remember(version, self._parameters)

    def rest(self) -> None:
        pass

    def follow(self) -> None:
        """Return at once: there is no other rank."""

    def interrupt(self) -> None:
        """Do nothing: what computes cannot be ended half-way."""

    def acquire(self) -> None:
        nn.Module.to(self._model, self._device)
        move_state(self._optimizer, self._device)
        self._side.move(self._device)

    def release(self) -> int:
        nn.Module.to(self._model, "cpu")
        move_state(self._optimizer, torch.device("cpu"))
        self._side.move(torch.device("cpu"))
        # The allocator would keep the freed memory from the worker's other process.
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
            return int(torch.cuda.mem_get_info(self._device)[0])
        return free_host_bytes()

    def _placed(self, model: PreTrainedModel) -> PreTrainedModel:
        """Return the model, sharded if the back end shards it."""
        return model

    def _whole_weights(self) -> dict[str, Tensor]:
        """Return the tensors to publish, by name."""
        return self._model.state_dict()

    def _merged(self, sums: TokenSums) -> TokenSums:
        """Return the sums over all ranks."""
        return sums

    def _train(self, step: StepInput, total: int) -> dict[str, float]:
        """Train this process's share of a step that has `total` trained tokens on all ranks."""
        self._computing(True)
        sums, norm = self._gradients(step, total)
        if total:
            self._update(norm, step.learning_rate)
            if (critic := self._side.critic) is not None:
                batches = step.micro_batches
                sums.add_value_loss(critic.train(batches, self._ranks, self._autocast))
        sums = self._merged(sums)
        with self._autocast():
            self._older.measure(self._forward, step.samples, sums)
        self._computing(False)
        return sums.metrics() | {"grad_norm": norm, "learning_rate": step.learning_rate}

    def _gradients(self, step: StepInput, total: int) -> tuple[TokenSums, float]:
        """Compute the gradient of a step and clip it; return the sums and the norm before.

        Gradients in float16 would vanish, so the loss is scaled up and the sum of them down again.
        Where that overflows, they are computed again with a smaller scale: no step is lost, and
        none depends on what was computed before it, so a resumed run repeats it.
        """
        scale = self._first_scale
        while True:
            sums = TokenSums()
            for batch in step.micro_batches:
                self._backward(batch, step.version, sums, scale)
            norm = self._clipped(scale) if total else 0.0
            if math.isfinite(norm) or scale == 1:
                return sums, norm
            _log.warning("gradients overflow at loss scale %g: again with a smaller one", scale)
            self._optimizer.zero_grad(set_to_none=True)
            scale = max(scale / _SCALE_STEP, 1.0)

    def _backward(
        self, batch: MicroBatch, version: int, sums: TokenSums, scale: float = 1.0
    ) -> None:
        """Add the gradient of a micro-batch: the sum over its tokens by their weights."""
        with self._autocast():
            logprobs_N, entropies_N = self._forward(batch, bool(self._settings.loss.entropy))
        engine_N = torch.from_numpy(batch.logprobs_N).to(self._device)
        tokens = LossTokens(
            logprobs_N=logprobs_N,
            engine_N=engine_N,
            old_N=old_policy(
                logprobs_N, engine_N, self._settings.loss, self._column(batch, Column.PROXIMAL)
            ),
            advantages_N=torch.from_numpy(batch.advantages_N).to(self._device),
            entropies_N=entropies_N,
            reference_N=self._column(batch, Column.REFERENCE) if self._settings.loss.kl else None,
            turns_N=batch.turns_N,
            sessions_N=batch.sessions_N,
        )
        weights_N = torch.from_numpy(batch.weights_N).to(self._device)
        log_ratios_N = logprobs_N - engine_N
        losses = token_losses(tokens, self._settings.loss)
        # FSDP2 averages gradients over the ranks, so a rank's sum is multiplied by their number.
        torch.autograd.backward((losses.loss_N * weights_N).sum() * (self._ranks * scale))
        sums.add_losses(losses, weights_N, log_ratios_N, entropies_N)
        if tokens.reference_N is not None:
            sums.add_reference(tokens.reference_N - logprobs_N)
        current_N = torch.from_numpy(batch.versions_N == version).to(self._device)
        sums.add_mismatch(log_ratios_N[current_N])

    def _column(self, batch: MicroBatch, name: Column) -> Tensor | None:
        """Return a column (N), or None if the micro-batch has not got it.

        One without a token, of a rank that has less to do, has none.
        """
        found_N = batch.columns.get(name)
        return None if found_N is None else torch.from_numpy(found_N).to(self._device)

    def _clipped(self, scale: float) -> float:
        """Undo the scale of the gradient and clip it; return its norm before clipping."""
        if scale != 1:
            for parameter in self._parameters.values():
                if parameter.grad is not None:
                    parameter.grad.div_(scale)
        clipped = torch.nn.utils.clip_grad_norm_(
            self._parameters.values(), self._settings.optimizer.clip_norm
        )
        return float(full(clipped))

    def _update(self, norm: float, learning_rate: float) -> None:
        """Apply the gradient, unless its norm is not finite."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        if math.isfinite(norm):
            self._optimizer.step()
        else:
            _log.error("the gradient is not finite (%s): the weights stay as they are", norm)
        self._optimizer.zero_grad(set_to_none=True)

    def _autocast(self) -> AbstractContextManager[object]:
        compute = self._settings.compute
        if compute == self._settings.master_dtype:
            return nullcontext()
        return torch.autocast(self._device.type, DTYPES[compute])
