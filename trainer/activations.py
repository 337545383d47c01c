"""A micro-batch's activations, in bytes, and the micro-batch that a CPU gets by default. Pure.

Called by the plan of memory and by the defaults that follow from devices.
"""

from seamlessflow.infra.device_model.model_shape import LayerShape, ModelShape
from seamlessflow.trainer.parallelism import PAIRS, SIZES
from seamlessflow.trainer.settings import TrainerSection

_FLOAT = 4
_ACTIVATIONS = 640 << 20
"""Bytes of activations that a micro-batch on a CPU takes by default: with more it is no faster."""
_LEAST_TOKENS = 256


def fitting_tokens(model: ModelShape, trainer: TrainerSection, longest: int) -> int:
    """Return the tokens of a micro-batch on a CPU by default: those whose activations take 640 MiB.

    At most those of the settings, which a model of unknown layers also gets. `longest`: tokens of
    the longest chain.
    """
    most = trainer.micro_batch_tokens
    if model.layer is None:
        return most
    size = model.layer.count * activation_bytes(model.layer, trainer, longest, on_gpu=False)
    return min(most, max(_LEAST_TOKENS, int(_ACTIVATIONS / size)))


def activation_bytes(
    layer: LayerShape, trainer: TrainerSection, longest: int, on_gpu: bool
) -> float:
    """Return what the backward pass needs of one token in one layer.

    An element has c bytes in matrix products, s bytes in the stream between layers. H, I, Q, K are
    the stream's widths, the feed-forward part, queries and keys. Two RMSNorms keep their input
    in float32 and their result: 2 (4 + s) H. Linear layers keep their inputs: 2 c H (5 c H with
    autocast's copies) and 4 c I. Norms of queries and keys keep (4 + c) (Q + K). Attention keeps c
    (2 Q + 2 K); for a mask or `eager`, keys and values are repeated to Q. `eager` also keeps scores
    for `longest` tokens. Ranks that share a layer each have all that is as wide as the stream.
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
    """Return whether attention gets a mask of pairs of tokens."""
    padded = trainer.layout == "padded" or (trainer.layout == "auto" and on_gpu)
    return not padded and not trainer.flash


def mask_pairs(trainer: TrainerSection, tokens: int) -> int:
    """Return the pairs of tokens of a mask, in a micro-batch of at most so many tokens.

    They are all pairs of one row, or with `auto` those of the largest trees.
    """
    if trainer.layout != "auto":
        return tokens**2
    # A chain of more tokens is alone, without a mask; a tree of more may be.
    several = min(tokens, trainer.micro_batch_tokens)
    return max(several * min(several, PAIRS), min(tokens, PAIRS) ** 2)


def stream_bytes(trainer: TrainerSection) -> int:
    """Return the bytes of an element between layers: autocast leaves it as the weights are."""
    autocast = trainer.backend == "torch"
    return SIZES[trainer.master_dtype if autocast else trainer.compute]


def tensor_parallel(trainer: TrainerSection) -> int:
    """Return the ranks that share each layer."""
    return trainer.megatron.tensor_parallel if trainer.backend == "megatron" else 1
