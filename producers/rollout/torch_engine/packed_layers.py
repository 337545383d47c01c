"""A model's linear layers on a CPU, with weights in the order in which oneDNN multiplies them.

A decoding pass has few rows, so most of its time goes into reading weights. torch gives products of
plain float32 weights to MKL, which reads them two to three times as slowly as oneDNN reads packed
ones (`benchmarks engine --model`). torch's own compiler packs the layers of frozen models with the
same two operators.

A packed layer does not keep its plain weight, so a model takes as much memory as before. A weight
that is tied to another one stays beside its packed copy.
"""

from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

_LEAST = 2**16
"""A weight with fewer values is not packed: products with it take no time."""

_TOLERANCE = 1e-3
"""Rounding may change logits by this share of the largest one."""


class PackedLinear(nn.Module):
    """A linear layer with a packed float32 weight. If not tied, its `weight` is only a shape."""

    def __init__(self, layer: nn.Linear, tied: bool) -> None:
        super().__init__()
        self.bias = layer.bias
        self.weight = layer.weight
        self.tied = tied
        self._packed = _packed(layer.weight)
        if not tied:
            shape_alone = torch.empty_like(layer.weight, device="meta")
            self.weight = nn.Parameter(shape_alone, requires_grad=False)

    def pack(self, weight: Tensor) -> None:
        """Take a weight of the layer's shape."""
        self._packed.copy_(_packed(weight))  # in place, or memory would become fragmented

    def forward(self, inputs: Tensor) -> Tensor:
        """Return inputs [..., in] times the weight, plus the bias: [..., out]."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self._packed, self.bias, "none", [], ""
        )
        return product


class PackedLayers:
    """A model's packed layers; none if it is not on a CPU, or not in float32."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Pack the model's large linear layers, unless its own code reads their weights."""
        self._model = model
        self._layers: dict[str, PackedLinear] = {}
        plain = _large_layers(model) if _can_pack(model) else {}
        if not plain:
            return
        logits_V = _logits_V(model)
        names = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
        for name, layer in plain.items():
            self._layers[name] = PackedLinear(layer, names[id(layer.weight)] > 1)
            model.set_submodule(name, self._layers[name])
        if _agrees(model, logits_V):
            _copy(model)
        else:
            for name, layer in plain.items():
                model.set_submodule(name, layer)
            self._layers = {}

    def put(self, tensors: Mapping[str, Tensor]) -> None:
        """Put tensors into the model, by their names in its state dict."""
        if not tensors:
            return  # only the adapter is new, so a tied weight need not be packed again
        state = self._model.state_dict()
        alone = {f"{name}.weight": layer for name, layer in self._layers.items() if not layer.tied}
        for name, tensor in tensors.items():
            if name in alone:
                alone[name].pack(tensor)
            else:
                state[name].copy_(tensor)
        for layer in self._layers.values():
            if layer.tied:
                layer.pack(layer.weight)


def _packed(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach().float())
    return packed


def _copy(model: PreTrainedModel) -> None:
    """Give each remaining weight its own memory: one view of a file keeps the whole file there."""
    for weight in model.parameters():
        if not weight.is_meta:
            weight.data = weight.data.clone()


def _can_pack(model: PreTrainedModel) -> bool:
    """Return whether such a model is packed, and this torch can do it."""
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return False
    try:
        PackedLinear(nn.Linear(2, 2), tied=True)(torch.zeros(1, 2))
    except (AttributeError, NotImplementedError, RuntimeError):
        return False  # built without oneDNN, or for a processor on which it has no such product
    return True


def _large_layers(model: PreTrainedModel) -> dict[str, nn.Linear]:
    return {
        name: module
        for name, module in model.named_modules()
        if type(module) is nn.Linear and module.weight.numel() >= _LEAST
    }


def _agrees(model: PreTrainedModel, logits_V: Tensor) -> bool:
    """Return whether the model still gives these logits without its layers' plain weights."""
    try:
        packed_V = _logits_V(model)
    except (NotImplementedError, RuntimeError):
        return False
    tolerance = _TOLERANCE * float(logits_V.abs().max())
    return not packed_V.is_meta and torch.allclose(packed_V, logits_V, rtol=0.0, atol=tolerance)


def _logits_V(model: PreTrainedModel) -> Tensor:
    with torch.inference_mode():
        output = model(input_ids=torch.zeros(1, 2, dtype=torch.int64), use_cache=False)
    logits_V: Tensor = output.logits[0, -1]
    return logits_V
