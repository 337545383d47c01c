"""A micro-batch's activations, in bytes, and a CPU's default micro-batch size. Pure.

Called by the memory plan and by the defaults that follow from devices.
"""

from seamlessflow.infra.device_model.model_shape import LayerShape, ModelShape
from seamlessflow.trainer.parallelism import SIZES, TREE_TOKENS
from seamlessflow.trainer.settings import TrainerSection

_FLOAT = 4
_ACTIVATIONS = 640 << 20
"""Bytes for activations in a CPU's default micro-batch: a larger one is no faster."""
_LEAST_TOKENS = 256


def fitting_tokens(model: ModelShape, trainer: TrainerSection, longest: int) -> int:
    """Return how many tokens a CPU's micro-batch has by default: their activations take 640 MiB.

    At most `micro_batch_tokens`, which is also the answer for a model whose layers are unknown.
    `longest`: tokens in the longest chain.
    """
    most = trainer.micro_batch_tokens
    if model.layer is None:
        return most
    size = model.layer.count * activation_bytes(model.layer, trainer, longest, on_gpu=False)
    return min(most, max(_LEAST_TOKENS, int(_ACTIVATIONS / size)))


def activation_bytes(
    layer: LayerShape, trainer: TrainerSection, longest: int, on_gpu: bool
) -> float:
    """Return how many bytes the backward pass keeps for one token in one layer.

    An element takes c bytes in matrix products, and s bytes in the stream between layers. The
    widths are H (stream), I (feed-forward part), Q (queries) and K (keys). Two RMSNorms keep their
    input in float32, and their result: 2 (4 + s) H. Linear layers keep their inputs: 2 c H (5 c H
    with autocast's copies) and 4 c I. Norms on queries and keys keep (4 + c) (Q + K). Attention
    keeps c (2 Q + 2 K); with a mask or `eager` it repeats keys and values to Q. `eager` also keeps
    scores for `longest` tokens. If ranks share a layer, each still has everything as wide as the
    stream.
    """
    compute = SIZES[trainer.compute]
    stream = stream_bytes(trainer)
    hidden = layer.hidden
    queries = layer.query_width
    keys = layer.key_width
    copies = 2 if stream == compute else 5
    whole = 2 * (_FLOAT + stream) * hidden + copies * compute * hidden
    size = 4.0 * compute * layer.intermediate
    if layer.normed:
        size += (_FLOAT + compute) * (queries + keys)
    eager = trainer.attention == "eager"
    masked = trainer.attention == "sdpa" and has_mask(trainer, on_gpu)
    size += compute * (2 * queries + 2 * (queries if eager or masked else keys))
    if eager:
        size += layer.heads * longest * (_FLOAT + (compute if compute < _FLOAT else 0))
    return whole + size / tensor_parallel(trainer)


def has_mask(trainer: TrainerSection, on_gpu: bool) -> bool:
    """Return whether attention gets a mask over token pairs."""
    padded = trainer.layout == "padded" or (trainer.layout == "auto" and on_gpu)
    return not padded and not trainer.flash


def mask_pairs(trainer: TrainerSection, tokens: int) -> int:
    """Return how many token pairs a mask covers, in a micro-batch with at most `tokens` tokens.

    They are all pairs in one row, or with `auto` those in the largest trees.
    """
    if trainer.layout != "auto":
        return tokens**2
    # A longer chain stands alone, without a mask; a longer tree may need one.
    several = min(tokens, trainer.micro_batch_tokens)
    return max(several * min(several, TREE_TOKENS), min(tokens, TREE_TOKENS) ** 2)


def stream_bytes(trainer: TrainerSection) -> int:
    """Return an element's bytes between layers: autocast leaves the stream in the weights' type."""
    autocast = trainer.backend == "torch"
    return SIZES[trainer.master_dtype if autocast else trainer.compute]


def tensor_parallel(trainer: TrainerSection) -> int:
    """Return how many ranks share each layer."""
    return trainer.megatron.tensor_parallel if trainer.backend == "megatron" else 1
