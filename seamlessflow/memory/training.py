"""Memory of a training rank, on its device and on its host, in bytes.

Pure. The figures follow the back ends as they are. Autograd's tensors are those in transformers'
dense decoder layers (RMSNorm in float32, a gated feed-forward part). What a rank holds is counted
as in ZeRO (Rajbhandari et al., arXiv 1910.02054, section 3.1). FSDP2 adds its gathered blocks.
`tests/integration/trainer/memory` compares the figures with measured peaks. Called by `demand.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from seamlessflow.infra.device_model.model_shape import LayerShape, ModelShape
from seamlessflow.machine import (
    CONTEXT,
    LIBRARIES,
    MEBIBYTE,
    MemoryPart,
    MemoryParts,
    total,
)
from seamlessflow.trainer.activations import (
    activation_bytes,
    has_mask,
    mask_pairs,
    stream_bytes,
    tensor_parallel,
)
from seamlessflow.trainer.parallelism import LOGITS_AT_ONCE, SIZES
from seamlessflow.trainer.settings import TrainerSection

_FLOAT = 4


@dataclass(frozen=True, slots=True)
class RankShape:
    """Facts from which a training rank's memory follows, beside the settings."""

    model: ModelShape
    tokens: int
    """Tokens in its largest micro-batch."""
    longest: int
    """Tokens in the longest chain there."""
    on_gpu: bool
    leaves: bool
    """True if an engine uses the same device: the rank moves to the host when the role leaves."""
    reference: ModelShape | None = None
    teacher: ModelShape | None = None
    critic: ModelShape | None = None


@dataclass(frozen=True, slots=True)
class RankMemory:
    """A training rank's memory, in parts."""

    kept: MemoryParts
    """On its device from the first step on."""
    phases: Mapping[str, MemoryParts]
    """On its device in addition, by a step's phases, one after the other."""
    host: MemoryParts
    """On its host, at most."""

    @property
    def phase(self) -> str:
        """The phase that takes most."""
        return max(self.phases, key=lambda name: total(self.phases[name]))

    @property
    def device_parts(self) -> MemoryParts:
        """All parts on the device in that phase."""
        return (*self.kept, *self.phases[self.phase])


def rank_memory(rank: RankShape, trainer: TrainerSection) -> RankMemory:
    """Return what a training rank takes.

    Its phases: `logits` is the end of a micro-batch's forward pass, `layers` its backward pass with
    recomputed activations. `reduction` (FSDP2) is the end of that pass: gradients outside the
    layers are summed. `update` is AdamW. In `annotation`, other models come and go.
    """
    master = SIZES[trainer.master_dtype]
    parameters = trained_parameters(rank.model, trainer) / _divisor(trainer)
    kept = [
        *_base(rank.model, trainer),
        MemoryPart(f"weights ({trainer.master_dtype})", master * parameters),
        MemoryPart(f"gradients ({trainer.master_dtype})", master * parameters),
        MemoryPart(f"moments ({trainer.master_dtype})", 2 * master * parameters),
    ]
    if rank.critic is not None:
        of_critic = (rank.critic.parameters - rank.critic.output) / _divisor(trainer)
        kept.append(MemoryPart("critic: weights, gradients, moments", 4 * master * of_critic))
    frozen = _frozen(rank, trainer)
    # A sharded model stays on the device, a whole one comes and goes.
    if trainer.backend == "fsdp2":
        kept += frozen
    if rank.on_gpu:
        kept.append(MemoryPart("CUDA itself", CONTEXT))
    passed = _passes(rank, trainer)
    logits = _logits(rank, trainer)
    phases = {"logits": (*passed, *logits), "update": _update(rank, trainer, parameters)}
    if trainer.gradient_checkpointing and rank.model.layer is not None:
        again = MemoryPart(
            "activations of one layer", _layer_bytes(rank, rank.model.layer, trainer)
        )
        phases["layers"] = (*passed, again)
    if trainer.backend == "fsdp2":
        phases["reduction"] = _reduction(rank.model, trainer)
    elif frozen:
        phases["annotation"] = (*frozen, logits[0])
    return RankMemory(tuple(kept), phases, _host(rank, trainer, parameters, frozen))


def trained_parameters(model: ModelShape, trainer: TrainerSection) -> int:
    """Return how many numbers are trained: the model's, or its adapter's."""
    adapter = trainer.adapter
    if not adapter.used:
        return model.parameters
    return adapter.rank * sum(model.widths.get(name, 0) for name in adapter.targets or model.widths)


def _base(model: ModelShape, trainer: TrainerSection) -> MemoryParts:
    """Return the frozen model that an adapter is on, in the type that it computes in."""
    if not trainer.adapter.used:
        return ()
    size = SIZES[trainer.compute] * model.parameters / _divisor(trainer)
    return (MemoryPart(f"base model ({trainer.compute})", size),)


def _passes(rank: RankShape, trainer: TrainerSection) -> MemoryParts:
    """Return what a micro-batch's forward and backward passes take in addition."""
    model = rank.model
    compute = SIZES[trainer.compute]
    stream = stream_bytes(trainer)
    parts = []
    if trainer.backend == "fsdp2":
        # The layer under way and the next one, gradients for one, and their sum in float32.
        gathered = model.outside * compute + model.output * compute
        gathered += model.block * (3 * compute + _FLOAT)
        parts.append(MemoryPart("gathered layers", gathered))
    elif compute < SIZES[trainer.master_dtype] and not trainer.adapter.used:
        parts.append(
            MemoryPart(
                f"weights ({trainer.compute})", model.parameters * compute / _divisor(trainer)
            )
        )
    if model.layer is not None:
        layer = model.layer
        once = rank.tokens * layer.hidden * stream
        again = trainer.gradient_checkpointing
        of_layer = once if again else _layer_bytes(rank, layer, trainer)
        ends = 2 * once + rank.tokens * layer.hidden * _FLOAT
        name = "inputs of layers" if again else "activations"
        parts.append(MemoryPart(name, layer.count * of_layer + ends))
        if has_mask(trainer, rank.on_gpu):
            # True or false for each pair. On a GPU torch's attention keeps it in numbers, in each
            # layer; elsewhere all layers share these.
            shared = again or trainer.attention == "eager" or not rank.on_gpu
            kept = 1 if shared else layer.count
            parts.append(
                MemoryPart("masks", mask_pairs(trainer, rank.tokens) * (1 + compute * kept))
            )
    return tuple(parts)


def _layer_bytes(rank: RankShape, layer: LayerShape, trainer: TrainerSection) -> float:
    """Return a micro-batch's activations in one layer, in bytes."""
    return rank.tokens * activation_bytes(layer, trainer, rank.longest, rank.on_gpu)


def _logits(rank: RankShape, trainer: TrainerSection) -> MemoryParts:
    """Return the logits that exist at once for a micro-batch, and what is computed from them.

    Many logits are computed part by part. The output layer's gradient is summed over the parts in
    float32 (`trainer/backends/scores.py`).
    """
    every = rank.tokens * rank.model.vocabulary
    compute = SIZES[trainer.compute]
    logits = min(every, LOGITS_AT_ONCE)
    # Half-precision logits are copied; their log-softmax has three results of that size.
    in_float = _FLOAT * logits * (3 if compute == _FLOAT else 4)
    parts = (
        MemoryPart(f"logits ({trainer.compute})", compute * logits),
        MemoryPart("gradients of logits", compute * logits + in_float),
    )
    if logits == every or trainer.adapter.used:
        return parts
    product = 0 if compute == _FLOAT else compute
    weights = rank.model.output / tensor_parallel(trainer)
    return (*parts, MemoryPart("gradient of the output layer", (_FLOAT + product) * weights))


def _reduction(model: ModelShape, trainer: TrainerSection) -> MemoryParts:
    """Return the gathered tensors outside the layers with their gradients and sums in float32."""
    compute = SIZES[trainer.compute]
    return (
        MemoryPart("gathered tensors", compute * model.outside),
        MemoryPart("their gradients, summed", (compute + _FLOAT) * model.outside),
    )


def _update(rank: RankShape, trainer: TrainerSection, parameters: float) -> MemoryParts:
    """Return AdamW's intermediate results.

    A GPU updates all tensors at once (`foreach`: as much as the parameters, by torch's
    documentation), a CPU one at a time.
    """
    master = SIZES[trainer.master_dtype]
    largest = min(rank.model.largest / _divisor(trainer), parameters)
    return (MemoryPart("AdamW's results", master * (parameters if rank.on_gpu else 2 * largest)),)


def _frozen(rank: RankShape, trainer: TrainerSection) -> list[MemoryPart]:
    size = SIZES[trainer.compute] / _divisor(trainer)
    models = {"reference": rank.reference, "teacher": rank.teacher}
    models |= {f"opponent {number + 1}": rank.model for number in range(trainer.opponents)}
    return [
        MemoryPart(f"{name} ({trainer.compute})", size * model.parameters)
        for name, model in models.items()
        if model is not None
    ]


def _host(
    rank: RankShape, trainer: TrainerSection, parameters: float, frozen: list[MemoryPart]
) -> MemoryParts:
    """Return what a rank keeps on its host at worst: all parts at once, most of them briefly."""
    master = SIZES[trainer.master_dtype]
    published = trainer.weights_dtype or trainer.dtype
    parts = [MemoryPart("libraries", LIBRARIES)]
    if rank.on_gpu and rank.leaves:
        parts.append(
            MemoryPart("weights and moments without the role", offloaded_bytes(rank, trainer))
        )
    if rank.on_gpu and trainer.backend != "fsdp2":
        parts += frozen
    parts.append(MemoryPart("copy for a checkpoint", 3 * master * parameters))
    if copies := remembered(master * parameters, trainer):
        parts.append(
            MemoryPart(
                f"{copies} remembered versions, and one more", (copies + 1) * master * parameters
            )
        )
    # A gang converts little at a time (`trainer/backends/sharded/tensor_files.py`).
    if trainer.backend == "torch":
        parts.append(MemoryPart(f"published weights ({published})", SIZES[published] * parameters))
    return tuple(parts)


def offloaded_bytes(rank: RankShape, trainer: TrainerSection) -> float:
    """Return what a rank moves to its host when the role leaves: weights, moments, and an adapter's
    base model.
    """
    trained = [trained_parameters(rank.model, trainer)]
    if rank.critic is not None:
        trained.append(rank.critic.parameters - rank.critic.output)
    size = 3 * SIZES[trainer.master_dtype] * sum(trained) / _divisor(trainer)
    return size + total(_base(rank.model, trainer))


def remembered(size: float, trainer: TrainerSection) -> int:
    """Return how many weights, `size` bytes each, are kept to compare engines with."""
    fit = trainer.mismatch_memory_mb * MEBIBYTE // max(size, 1)
    return int(min(trainer.mismatch_versions + 1, fit))


def _divisor(trainer: TrainerSection) -> int:
    """Return how many ranks divide weights, gradients and moments among them."""
    return trainer.ranks if trainer.backend == "fsdp2" else tensor_parallel(trainer)
