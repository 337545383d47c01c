"""A model's sizes, from which its memory and times follow.

They are read from `config.json` and the safetensors files' headers. Without safetensors files,
`config.json` implies the tensors, for families with Llama's tensors. No weights are read, and no
torch is imported.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seamlessflow.infra.errors import SeamlessFlowError

_LINEAR = 2
"""Dimensions of a linear layer's weight."""
_BLOCK = re.compile(r"^(.*?\.\d+)\.")
"""Name of a tensor in a repeated layer, such as `model.layers.3.mlp.up_proj.weight`."""
_OUTPUT = "lm_head.weight"
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Names under which configurations give a layer's expert count."""
_LLAMA_LIKE = ("llama", "mistral", "qwen2", "qwen3")
"""Model types with Llama's tensors, except for biases and head norms."""
_STRETCHING = ("linear", "dynamic", "yarn")
"""Rotary scalings whose factor is not in the limit that the configuration names."""
_LENGTH_BYTES = 8
_MOST_HEADER_BYTES = 100_000_000


class ShapeUnknown(SeamlessFlowError):
    """A directory whose files do not tell how large its model is."""

    def __init__(self, directory: Path, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"{directory}: {reason}")


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One layer of a dense decoder: attention, and a feed-forward part with a gate."""

    count: int
    """Layer count of the model."""
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_width: int
    normed: bool
    """True if queries and keys are normalised by head."""
    positions: int
    """Most tokens in a sequence that the configuration names; 0 if it names none."""

    @property
    def query_width(self) -> int:
        """Width that a token's queries take."""
        return self.heads * self.head_width

    @property
    def key_width(self) -> int:
        """Width that a token's keys take, all together; its values take the same."""
        return self.kv_heads * self.head_width


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model, in parameter counts."""

    parameters: int
    block: int
    """Parameters of the largest repeated layer."""
    outside: int
    """Parameters outside the repeated layers: embeddings, output and the last norm."""
    largest: int
    """Parameters of the largest tensor."""
    vocabulary: int
    output: int
    """The output layer's parameters, its tied embeddings included."""
    layer: LayerShape | None
    """None for a model that is not dense, or whose keys are not the usual ones: see `unknown`."""
    unknown: str = ""
    """Why there is no `layer`."""
    expert_parameters: int = 0
    """Parameters in experts; a token uses a few experts."""
    widths: Mapping[str, int] = field(default_factory=dict)
    """By last name, such as `q_proj`: a linear layer's inputs plus outputs, over all blocks."""


def read_shape(directory: Path) -> ModelShape:
    """Return a model's shape from its directory, or from only a `config.json`.

    Raises `ShapeUnknown`.
    """
    path = _config_file(directory)
    try:
        with _told(directory, path.name):
            config = read_config(directory)
        with _told(directory, "the safetensors files"):
            files = _weight_files(directory)
            tensors = _tensors(files)
    except OSError as error:
        named = error.filename or path
        raise ShapeUnknown(directory, f"{named}: {error.strerror or error}") from error
    if not files:
        try:
            tensors = implied_tensors(config)
        except ValueError as error:
            raise ShapeUnknown(directory, f"it has no safetensors files, and {error}") from error
    if config.get("tie_word_embeddings"):
        tensors = {name: shape for name, shape in tensors.items() if name != _OUTPUT}
    if not tensors:
        raise ShapeUnknown(directory, "its safetensors files name no tensor")
    return _shape(config, tensors)


def read_config(directory: Path) -> Mapping[str, Any]:
    """Return a model's configuration; what its `text_config` says replaces the rest.

    Raises `OSError`, `ValueError`, `TypeError` and `AttributeError` for any other file.
    """
    config = json.loads(_config_file(directory).read_bytes())
    return {**config, **config.get("text_config", {})}


def positions_of(directory: Path) -> int:
    """Return the most tokens in a sequence that a model's configuration names; 0 if it names none.

    A rotary scaling that stretches positions counts. A file that is no configuration gives 0 too.
    """
    try:
        config = read_config(directory)
        named = _number(config, "max_position_embeddings") or 0
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        if (rope.get("rope_type") or rope.get("type")) not in _STRETCHING:
            return named
        original = rope.get("original_max_position_embeddings") or named
        return max(named, int(original * float(rope["factor"])))
    except (OSError, ValueError, TypeError, AttributeError, LookupError):
        return 0


def vocabulary_of(directory: Path) -> int:
    """Return how many token ids a model embeds; 0 if no configuration names it."""
    try:
        return _number(read_config(directory), "vocab_size") or 0
    except (OSError, ValueError, TypeError, AttributeError):
        return 0


def context_limit(directory: Path, asked: int) -> int:
    """Return the most tokens in a sequence: `asked`, or the model's own limit if that is lower."""
    return min(asked, positions_of(directory) or asked)


def has_sliding_window(directory: Path) -> bool:
    """Return True if a model's layers may keep fewer keys than a sequence has tokens."""
    config = read_config(directory)
    slides = bool(config.get("sliding_window")) and config.get("use_sliding_window", True)
    return slides or any(
        layer_type != "full_attention" for layer_type in config.get("layer_types") or ()
    )


def implied_tensors(config: Mapping[str, Any]) -> Mapping[str, list[int]]:
    """Return each tensor's shape by name, for a model that has no weights yet.

    Raises `ValueError` for a model type whose tensors are not Llama's.
    """
    kind = config.get("model_type")
    layer, lacking = _layer(config, normed=kind == "qwen3")
    if kind not in _LLAMA_LIKE or layer is None:
        why = lacking if kind in _LLAMA_LIKE else f"its model_type is {kind!r}"
        families = ", ".join(_LLAMA_LIKE)
        raise ValueError(f"config.json alone tells the tensors of {families} only: {why}")
    vocabulary = config["vocab_size"]
    hidden = layer.hidden
    tensors = {"model.embed_tokens.weight": [vocabulary, hidden], "model.norm.weight": [hidden]}
    if not config.get("tie_word_embeddings"):
        tensors[_OUTPUT] = [vocabulary, hidden]
    block = _block_tensors(config, layer)
    for number in range(layer.count):
        tensors |= {f"model.layers.{number}.{name}": shape for name, shape in block.items()}
    return tensors


def _block_tensors(config: Mapping[str, Any], layer: LayerShape) -> Mapping[str, list[int]]:
    """Return each tensor's shape in one layer, for a model like Llama."""
    hidden = layer.hidden
    inner = layer.intermediate
    outputs = {"q": layer.query_width, "k": layer.key_width, "v": layer.key_width, "o": hidden}
    inputs = {"q": hidden, "k": hidden, "v": hidden, "o": layer.query_width}
    biased = "qkv" if config["model_type"] == "qwen2" else ""
    if config.get("attention_bias"):
        biased = "qkvo"
    tensors = {
        "input_layernorm.weight": [hidden],
        "post_attention_layernorm.weight": [hidden],
        "mlp.gate_proj.weight": [inner, hidden],
        "mlp.up_proj.weight": [inner, hidden],
        "mlp.down_proj.weight": [hidden, inner],
    }
    for name, width in outputs.items():
        tensors[f"self_attn.{name}_proj.weight"] = [width, inputs[name]]
        if name in biased:
            tensors[f"self_attn.{name}_proj.bias"] = [width]
    if config.get("mlp_bias"):
        tensors |= {"mlp.gate_proj.bias": [inner], "mlp.up_proj.bias": [inner]}
        tensors["mlp.down_proj.bias"] = [hidden]
    if layer.normed:
        tensors |= {f"self_attn.{name}_norm.weight": [layer.head_width] for name in "qk"}
    return tensors


def _config_file(directory: Path) -> Path:
    return directory if directory.is_file() else directory / "config.json"


@contextmanager
def _told(directory: Path, files: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ShapeUnknown(directory, f"{files} cannot be read: {error}") from error


def _shape(config: Mapping[str, Any], tensors: Mapping[str, list[int]]) -> ModelShape:
    sizes = {name: math.prod(shape) for name, shape in tensors.items()}
    blocks: defaultdict[str, int] = defaultdict(int)
    for name, size in sizes.items():
        if block := _BLOCK.match(name):
            blocks[block[1]] += size
    normed = any(name.endswith("q_norm.weight") for name in sizes)
    layer, unknown = _layer(config, normed)
    total = sum(sizes.values())
    vocabulary = _number(config, "vocab_size") or 0
    return ModelShape(
        parameters=total,
        block=max(blocks.values(), default=0),
        outside=total - sum(blocks.values()),
        largest=max(sizes.values()),
        vocabulary=vocabulary,
        output=vocabulary * (_number(config, "hidden_size") or 0),
        layer=layer,
        unknown=unknown,
        expert_parameters=sum(size for name, size in sizes.items() if ".experts." in name),
        widths=_widths(tensors),
    )


def _widths(tensors: Mapping[str, list[int]]) -> Mapping[str, int]:
    widths: defaultdict[str, int] = defaultdict(int)
    for name, shape in tensors.items():
        layer, _, last = name.rpartition(".")
        if _BLOCK.match(name) and last == "weight" and len(shape) == _LINEAR:
            widths[layer.rpartition(".")[2]] += sum(shape)
    return widths


def _layer(config: Mapping[str, Any], normed: bool) -> tuple[LayerShape | None, str]:
    """Return a dense model's layer, or None and why it is unknown."""
    if experts := next(
        (name for name in (*EXPERTS, "num_experts_per_tok") if _number(config, name)), None
    ):
        return None, f"{experts} in its config.json: a mixture of experts"
    names = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
    numbers = {name: _number(config, name) for name in (*names, "vocab_size")}
    if lacking := [name for name, value in numbers.items() if value is None]:
        return None, f"its config.json lacks {', '.join(lacking)}"
    count, hidden, intermediate, heads = (numbers[name] or 0 for name in names)
    return LayerShape(
        count=count,
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        kv_heads=_number(config, "num_key_value_heads") or heads,
        head_width=_number(config, "head_dim") or hidden // heads,
        normed=normed,
        positions=_number(config, "max_position_embeddings") or 0,
    ), ""


def _number(config: Mapping[str, Any], name: str) -> int | None:
    value = config.get(name)
    return value if type(value) is int and value > 0 else None


def _weight_files(directory: Path) -> list[Path]:
    """Return a model's safetensors files, or an empty list if it has none.

    Raises `OSError` and `ValueError`.
    """
    index, single = (directory / f"model.safetensors{end}" for end in (".index.json", ""))
    if index.is_file():
        listed = json.loads(index.read_bytes())["weight_map"].values()
        return [directory / Path(name).name for name in sorted(set(listed))]
    return [single] if single.exists() else []


def _tensors(files: Iterable[Path]) -> Mapping[str, list[int]]:
    """Return each tensor's shape, by name. Raises `OSError` and `ValueError`."""
    shapes: dict[str, list[int]] = {}
    for file in files:
        shapes |= {
            name: tensor["shape"]
            for name, tensor in _header(file).items()
            if name != "__metadata__"
        }
    return shapes


def _header(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(_LENGTH_BYTES), "little")
        if length > _MOST_HEADER_BYTES:
            raise ValueError(f"{file} is no safetensors file")
        return {**json.loads(opened.read(length))}
