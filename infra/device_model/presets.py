"""Devices and models by name, with the figures from which times on a device follow.

A device has its peak speed, memory bandwidth and memory, by NVIDIA's data sheets. They are for
dense bf16 matrix operations (without sparsity) and SXM boards. H20 and H800 are export variants, as
their vendors describe them.

A model has the figures in its published `config.json`. A token's KV takes 2 x layers x KV heads x
head size values, two bytes each. The attention width is query heads x head size. A model may also
be named by its directory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.infra.device_model.model_shape import (
    EXPERTS,
    ModelShape,
    ShapeUnknown,
    read_config,
    read_shape,
)
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.faults import suggestion

BYTES_A_PARAMETER = 2
"""Weights in bf16."""


class UnknownPreset(SeamlessFlowError):
    """No device, or no model, has this name."""

    def __init__(self, kind: str, name: str, presets: Mapping[str, object]) -> None:
        self.kind = kind
        self.name = name
        near = suggestion(name, presets)
        super().__init__(f"no {kind} {name!r} is known; known are {', '.join(presets)}{near}")


@dataclass(frozen=True, slots=True)
class Hardware:
    """One device."""

    name: str
    peak_flops: float
    """Dense bf16 matrix operations a second, in flop."""
    bandwidth: float
    """Bytes a second from its memory."""
    memory_bytes: float

    @property
    def figures(self) -> Mapping[str, float]:
        """The figures as `WorkerHeartbeat.hardware` has them."""
        return {
            "peak_flops": self.peak_flops,
            "bandwidth": self.bandwidth,
            "memory_bytes": self.memory_bytes,
        }


HARDWARE: Mapping[str, Hardware] = {
    preset.name: preset
    for preset in (
        Hardware("H20", 148e12, 4.0e12, 96e9),
        Hardware("H100", 989e12, 3.35e12, 80e9),
        Hardware("H800", 989e12, 3.35e12, 80e9),
        Hardware("H200", 989e12, 4.8e12, 141e9),
        Hardware("A100", 312e12, 2.04e12, 80e9),
        Hardware("L40S", 362e12, 0.864e12, 48e9),
        Hardware("B200", 2250e12, 8.0e12, 180e9),
    )
}


def hardware_named(name: str) -> Hardware:
    """Return the device of that name. Raises `UnknownPreset`."""
    if name not in HARDWARE:
        raise UnknownPreset("device", name, HARDWARE)
    return HARDWARE[name]


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A model in bf16."""

    name: str
    parameters: float
    active: float
    """Parameters that one token uses: all, except in a mixture of experts."""
    layers: int
    kv_bytes: float
    """One token's keys and values, in bytes."""
    attention_width: int

    @property
    def weight_bytes(self) -> float:
        """Size of all weights."""
        return BYTES_A_PARAMETER * self.parameters


def _model(
    name: str, billions: float, layers: int, heads: int, kv_heads: int, active: float | None = None
) -> ModelSize:
    head_size = 128
    return ModelSize(
        name=name,
        parameters=1e9 * billions,
        active=1e9 * (billions if active is None else active),
        layers=layers,
        kv_bytes=2 * layers * kv_heads * head_size * BYTES_A_PARAMETER,
        attention_width=heads * head_size,
    )


MODELS: Mapping[str, ModelSize] = {
    model.name: model
    for model in (
        _model("Qwen3-0.6B", 0.6, 28, 16, 8),
        _model("Qwen3-1.7B", 1.7, 28, 16, 8),
        _model("Qwen3-4B", 4.0, 36, 32, 8),
        _model("Qwen2.5-7B", 7.6, 28, 28, 4),
        _model("Qwen3-8B", 8.2, 36, 32, 8),
        _model("Qwen3-14B", 14.8, 40, 40, 8),
        _model("Qwen3-32B", 32.8, 64, 64, 8),
        _model("Qwen2.5-72B", 72.7, 80, 64, 8),
        _model("Qwen3-30B-A3B", 30.5, 48, 32, 4, active=3.3),
        _model("Qwen3-235B-A22B", 235.0, 94, 64, 4, active=22.0),
    )
}


def model_named(name: str) -> ModelSize:
    """Return the model with that name, or from that directory with a `config.json`.

    Raises `UnknownPreset` and `ShapeUnknown`.
    """
    if name in MODELS:
        return MODELS[name]
    directory = Path(name)
    if directory.exists():
        return _sized(name, read_shape(directory), read_config(directory))
    raise UnknownPreset("model", name, MODELS)


def _sized(name: str, shape: ModelShape, config: Mapping[str, object]) -> ModelSize:
    """Return a model's size; its KV bytes are those that usual attention takes."""
    layers, heads, hidden = (
        _number(name, config, key)
        for key in ("num_hidden_layers", "num_attention_heads", "hidden_size")
    )
    if config.get("kv_lora_rank"):
        raise ShapeUnknown(Path(name), "its keys are compressed (kv_lora_rank): give device_model")
    kv_heads = _number(name, config, "num_key_value_heads", heads)
    width = _number(name, config, "head_dim", hidden // heads)
    return ModelSize(
        name=name,
        parameters=shape.parameters,
        active=shape.parameters - _idle(name, shape, config),
        layers=layers,
        kv_bytes=2 * layers * kv_heads * width * BYTES_A_PARAMETER,
        attention_width=heads * width,
    )


def _idle(name: str, shape: ModelShape, config: Mapping[str, object]) -> float:
    """Return how many parameters are in experts that a token does not use."""
    if not shape.expert_parameters:
        return 0.0
    experts = next((config[key] for key in EXPERTS if config.get(key)), None)
    used = _number(name, config, "num_experts_per_tok")
    if not isinstance(experts, int):
        raise ShapeUnknown(Path(name), f"its config.json lacks all of {', '.join(EXPERTS)}")
    return shape.expert_parameters * (1 - used / experts)


def _number(name: str, config: Mapping[str, object], key: str, otherwise: int | None = None) -> int:
    """Return a positive number from a configuration. Raises `ShapeUnknown`."""
    value = config.get(key) or otherwise
    if type(value) is not int or value < 1:
        raise ShapeUnknown(Path(name), f"its config.json lacks {key}")
    return value
