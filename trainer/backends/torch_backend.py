"""The back end on one device: the model, AdamW and the optimizer step.

Called by the steps through the interface in `backend.py`. While the role is not held, everything is
on the host. N counts a micro-batch's trained tokens.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from queue import Queue

import torch
from torch import Tensor
from transformers import PreTrainedModel

from seamlessflow.infra.host import device_named, free_host_bytes
from seamlessflow.trainer.backends.adapter.lora import trained
from seamlessflow.trainer.backends.adapter.policy_model import PolicyModel
from seamlessflow.trainer.backends.backend import NO_STEP, Computing, Machine, StepInput, unmeasured
from seamlessflow.trainer.backends.device_moves import DeviceMoves
from seamlessflow.trainer.backends.failures import GradientNorms, PassFailures
from seamlessflow.trainer.backends.forward import (
    Forward,
    cannot_mask,
    check_layout,
    use_attention,
)
from seamlessflow.trainer.backends.losses.loss import loss_tokens, token_losses
from seamlessflow.trainer.backends.model import DTYPES, recompute_activations
from seamlessflow.trainer.backends.older_weights import OlderWeights
from seamlessflow.trainer.backends.optimizer_state import (
    Keeping,
    adamw,
    load_random,
    random_state,
    save_state,
)
from seamlessflow.trainer.backends.sharded.parts import FileParts
from seamlessflow.trainer.backends.side.models import SideModels
from seamlessflow.trainer.backends.token_sums import TokenSums
from seamlessflow.trainer.data.chains import AnnotatedColumns, Column
from seamlessflow.trainer.data.packing import Layout, MicroBatch
from seamlessflow.trainer.parallelism import Dtype
from seamlessflow.trainer.settings import TrainerSection

_log = logging.getLogger(__name__)
_LARGEST_SCALE = 2.0**16
_SCALE_STEP = 2.0**4
"""First scale for a float16 loss, and the divisor that gives each next scale."""


class TorchBackend:
    """A `Backend` (see `backend.py`) on one device.

    For `RankBackend` to override: `_ranks`, `_keeping`, `_placed`, `_whole_weights`, `_merged`,
    `_shared`, `_summed`, `_autocast`.
    """

    _ranks = 1
    """Processes whose gradients are averaged."""

    def __init__(
        self, model_directory: Path, settings: TrainerSection, computing: Computing = unmeasured
    ) -> None:
        """Load the model on the host. Raise `ModelUnusable`."""
        self._threads = settings.threads or torch.get_num_threads()
        self._use_threads()
        torch.manual_seed(settings.seed)
        # cuDNN would plan anew for each micro-batch shape, for a second each.
        torch.backends.cuda.enable_cudnn_sdp(False)
        self._settings = settings
        self._computing = computing
        self._policy = PolicyModel(model_directory, settings)
        self._device = torch.device(device_named(settings.device, torch.cuda.is_available))
        self._model = self._policy.begun(self._placed(use_attention(self._policy.load(), settings)))
        check_layout(self._model, settings.layout)
        if settings.gradient_checkpointing:
            recompute_activations(self._model)
        self._parameters = trained(self._model)
        section = settings.optimizer
        self._optimizer = adamw(self._parameters.values(), section, section.lr)
        self._moves = DeviceMoves(self._device)
        self._forward = Forward(self._model)
        self._side = SideModels(
            model_directory,
            settings,
            self._placed,
            self._keeping,
            self._forward,
            self._parameters,
        )
        self._snapshots = Queue[FileParts]()
        limit = settings.mismatch_memory_mb * 2**20
        self._older = OlderWeights(self._model, settings.mismatch_versions + 1, limit)

    @property
    def dtype(self) -> Dtype:
        return self._policy.published_dtype

    @property
    def layout(self) -> Layout:
        if self._settings.layout != "auto":
            return self._settings.layout
        unmasked = self._side.unmasked or cannot_mask(self._model)
        return "padded" if unmasked or self._device.type != "cpu" else "auto"

    @property
    def _first_scale(self) -> float:
        """Return the loss's factor at the first attempt to compute a gradient."""
        return _LARGEST_SCALE if self._settings.compute == "float16" else 1.0

    @property
    def machine(self) -> Machine:
        name = (
            torch.cuda.get_device_name(self._device)
            if self._device.type == "cuda"
            else f"cpu {torch.backends.cpu.get_cpu_capability()}"
        )
        return Machine(name, self._threads, torch.__version__)

    def annotate(
        self, batches: Sequence[MicroBatch], columns: Sequence[Column]
    ) -> AnnotatedColumns:
        self._use_threads()
        self._computing(True)
        annotated = self._side.annotate(batches, columns, self._device, self._autocast)
        self._computing(False)
        return annotated

    def train(self, step: StepInput) -> dict[str, float]:
        return self._train(step, sum(len(batch) for batch in step.micro_batches))

    def gradients(self, step: StepInput) -> Iterator[Mapping[str, Tensor]]:
        """Yield the gradient so far, by parameter, after each of a step's micro-batches.

        It is not clipped, and no update follows. Raise `UpdateFailed` for a loss that raises.
        """
        self._use_threads()
        scale = self._first_scale
        failures = PassFailures()
        try:
            for batch in step.micro_batches:
                self._backward(batch, step.version, TokenSums(), failures, scale)
                failures.check(GradientNorms(0.0), len(batch), self._settings)
                yield {
                    name: parameter.grad / scale
                    for name, parameter in self._parameters.items()
                    if parameter.grad is not None
                }
        finally:
            self._discard()

    def state(self) -> FileParts:
        """Return a copy of the random state, and of this rank's weights and optimizer."""
        files = self._keeping.copied(self._model, self._optimizer)
        return {**files, **self._side.state(), **random_state()}

    def remember(self, version: int) -> None:
        self._older.remember(version, self._parameters)
        self._side.step_over(version, self._parameters)

    def remembered(self) -> Sequence[int]:
        return self._older.versions()

    def write_weights(self, directory: Path) -> None:
        self._policy.write(self._model, self._whole_weights(), directory)

    def snapshot(self) -> None:
        self._snapshots.put(self.state())

    def save(self, directory: Path) -> None:
        save_state(directory, self._snapshots.get_nowait(), leads=True)
        self._policy.save(directory)

    def load(self, directory: Path | None, version: int) -> None:
        if directory is not None:
            self._policy.check(directory)
            self._keeping.load(directory, self._model, self._optimizer)
            self._side.load(directory)
            load_random(directory)
        self._older.remember(version, self._parameters)

    def rest(self, step: int = NO_STEP) -> None:
        pass

    def follow(self) -> int:
        """Return at once: there is no other rank."""
        return NO_STEP

    def interrupt(self) -> None:
        """Do nothing: a computation cannot be ended half-way."""

    def acquire(self) -> None:
        self._moves.to_device(self._model, self._optimizer)
        self._side.move(self._moves.to_device)

    def release(self) -> int:
        self._moves.to_host(self._model, self._optimizer)
        self._side.move(self._moves.to_host)
        # The allocator would keep the freed memory from the worker's other process.
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
            return int(torch.cuda.mem_get_info(self._device)[0])
        return free_host_bytes()

    @cached_property
    def _keeping(self) -> Keeping:
        return Keeping(self._settings.optimizer.clip_norm)

    def _use_threads(self) -> None:
        """Let the calling thread compute with the configured number of CPU threads.

        Torch and its maths library keep that number by thread, so the main thread's does not hold
        for the steps' thread. With another number, tensors differ in their last bits.
        """
        torch.set_num_threads(self._threads)

    def _placed(self, model: PreTrainedModel) -> PreTrainedModel:
        """Return the model, sharded if the back end shards it."""
        return model

    def _whole_weights(self) -> dict[str, Tensor]:
        """Return the tensors to publish, by name."""
        return dict(self._policy.tensors(self._model))

    def _merged(self, sums: TokenSums) -> TokenSums:
        """Return the sums over all ranks."""
        return sums

    def _shared(self, failures: PassFailures, norms: GradientNorms) -> PassFailures:
        """Return the failures of all ranks, as far as this one must know them."""
        return failures

    def _summed(self, values: Tensor) -> Tensor:
        """Return a host tensor's sum over all ranks."""
        return values

    def _train(self, step: StepInput, total: int) -> dict[str, float]:
        """Train this process's share in a step that has `total` trained tokens on all ranks."""
        self._use_threads()
        self._computing(True)
        sums, norm = self._gradients(step, total)
        if total:
            self._update(step.learning_rate)
            if (critic := self._side.critic) is not None:
                sums.add_value_loss(critic.train(step.micro_batches, self._ranks, self._autocast))
        sums = self._merged(sums)
        with self._autocast():
            self._older.measure(self._forward, step.samples, sums)
        self._computing(False)
        return sums.metrics() | {"grad_norm": norm, "learning_rate": step.learning_rate}

    def _gradients(self, step: StepInput, total: int) -> tuple[TokenSums, float]:
        """Compute a step's gradient and clip it; return the sums and the norm before.

        Gradients in float16 would vanish, so the loss is scaled up and their sum down again. If
        that overflows, they are computed again with a smaller scale, so no step is lost. Every step
        begins with the same scale, so a resumed run repeats it. Raise `UpdateFailed`.
        """
        scale = self._first_scale
        while True:
            sums = TokenSums()
            failures = PassFailures()
            for batch in step.micro_batches:
                self._backward(batch, step.version, sums, failures, scale)
            norms = self._clipped(scale) if total else GradientNorms(0.0)
            if norms.finite or scale == 1:
                self._shared(failures, norms).check(norms, total, self._settings)
                return sums, norms.policy
            _log.warning("gradients overflow at loss scale %g: again with a smaller one", scale)
            self._discard()
            scale = max(scale / _SCALE_STEP, 1.0)

    def _backward(
        self,
        batch: MicroBatch,
        version: int,
        sums: TokenSums,
        failures: PassFailures,
        scale: float,
    ) -> None:
        """Add a micro-batch's gradient: the sum over its tokens, times their weights."""
        settings = self._settings.loss
        head = self._side.head
        with self._autocast():
            (logprobs_N, entropies_N), hidden = self._forward.with_hidden(
                batch, bool(settings.entropy), behind=head is not None and head.behind
            )
        tokens = loss_tokens(batch, logprobs_N, entropies_N, settings)
        losses = failures.losses(
            settings.chosen, lambda: token_losses(tokens, settings), logprobs_N, batch.chains_N
        )
        weights_N = torch.from_numpy(batch.weights_N).to(self._device)
        loss = (losses.loss_N * weights_N).sum()
        if head is not None:
            of_values = head.loss(hidden, batch)
            sums.add_value_loss(float(of_values.detach()))
            loss = loss + of_values
        # FSDP2 averages gradients over the ranks, so a rank's sum is multiplied by their number.
        torch.autograd.backward(loss * (self._ranks * scale))
        newest_N = torch.from_numpy(batch.versions_N == version).to(self._device)
        sums.add(tokens, losses, weights_N, newest_N)

    def _clipped(self, scale: float) -> GradientNorms:
        """Undo the gradients' scale and clip them; return the norms before."""
        clipped = self._keeping.clipped(self._model, scale)
        head = self._side.head
        of_values = 0.0 if head is None else head.clipped(scale * self._ranks, self._summed)
        return GradientNorms(clipped, of_values)

    def _update(self, learning_rate: float) -> None:
        """Apply the gradients."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        if self._side.head is not None:
            self._side.head.update()
        self._discard()

    def _discard(self) -> None:
        """Forget all gradients."""
        self._optimizer.zero_grad(set_to_none=True)
        if self._side.head is not None:
            self._side.head.discard()

    def _autocast(self) -> AbstractContextManager[object]:
        compute = self._settings.compute
        if compute == self._settings.master_dtype:
            return nullcontext()
        return torch.autocast(self._device.type, DTYPES[compute])
