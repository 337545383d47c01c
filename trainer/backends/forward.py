"""The forward pass: log-probs and entropies of trained tokens under a Hugging Face model.

Logits are computed only where a trained token is predicted: the output layer gets only those hidden
states, so memory and time grow with trained tokens times vocabulary, not with all tokens; and of
these never all are in float32, unless the model computes in it. Called by the back ends.
Dimensions: B rows, T columns, H hidden, N trained tokens, V vocabulary.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from infra.worker.device import device_named
from trainer.backends.backend import ModelUnusable
from trainer.data.packing import Layout, MicroBatch
from trainer.settings import TrainerSection

_RECURRENT = ("linear", "mamba", "conv", "recurrent")
_MASKED = ("sdpa", "eager")
"""Implementations of attention that take a mask of pairs of tokens."""
_FULL = "full_attention"
_MOST_FLOATS = 1 << 24
"""Most logits that are in float32 at a time: 64 MiB, and as much for each result of them."""


class Forward:
    """The forward pass of one model."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Hook into the output layer of `model`; other callers of the model are not affected."""
        self._model = model
        self._places: tuple[Tensor, Tensor] | None = None
        self._scored = True
        self._hidden_NH: Tensor | None = None
        output: nn.Module = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        output.register_forward_pre_hook(self._select)
        weight = output.weight
        found = weight.shape[-1] if isinstance(weight, Tensor) else model.config.hidden_size
        self.width = int(found)
        """H, the size of the hidden states that the output layer gets."""

    def __call__(self, batch: MicroBatch, entropy_gradient: bool = False) -> tuple[Tensor, Tensor]:
        """Return log-probs (with gradient) and entropies of N trained tokens, float32."""
        logprobs_N, entropies_N, _ = self.with_hidden(batch, entropy_gradient)
        return logprobs_N, entropies_N

    def with_hidden(
        self, batch: MicroBatch, entropy_gradient: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same, and the last hidden states (N, H) where the tokens are predicted."""
        logits_NV, hidden_NH = self._pass(batch, scored=True)
        targets_N = torch.from_numpy(batch.targets_N).to(logits_NV.device)
        temperatures_N = _temperatures(batch, logits_NV.device)
        return *scores(logits_NV, targets_N, temperatures_N, entropy_gradient), hidden_NH

    def hidden(self, batch: MicroBatch) -> Tensor:
        """Return the last hidden states (N, H) alone, without any logits."""
        return self._pass(batch, scored=False)[1]

    def _pass(self, batch: MicroBatch, scored: bool) -> tuple[Tensor, Tensor]:
        """Return logits (of no token unless `scored`) and the states that they follow from."""
        device = self._model.device
        rows_N = torch.from_numpy(batch.rows_N).to(device)
        columns_N = torch.from_numpy(batch.columns_N).to(device)
        self._places, self._scored = (rows_N, columns_N), scored
        try:
            output = self._model(**model_inputs(self._model, batch))
            if self._hidden_NH is None:
                raise ModelUnusable(str(self._model.name_or_path), "has no call of its output")
            return output.logits[0], self._hidden_NH
        finally:
            # States that stay here would keep the activations of the whole pass.
            self._places = self._hidden_NH = None

    def _select(self, _: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if self._places is None:
            return None
        hidden_BTH, *others = arguments
        rows_N, columns_N = self._places
        hidden_NH = self._hidden_NH = hidden_BTH[rows_N, columns_N]
        return (hidden_NH if self._scored else hidden_NH[:0]).unsqueeze(0), *others


def scores(
    logits_NV: Tensor,
    targets_N: Tensor,
    temperatures_N: Tensor | None = None,
    entropy_gradient: bool = False,
    most: int = _MOST_FLOATS,
) -> tuple[Tensor, Tensor]:
    """Return the log-softmax at the targets (with gradient) and the entropy (if asked with one).

    Over the whole vocabulary, as engines report log-probs, also where top-k or top-p sampled. Of
    more than `most` logits a part after the other is in float32, and again in the backward pass.
    """
    rows = max(1, most // logits_NV.shape[-1])
    if len(logits_NV) <= rows:
        return _scores(logits_NV, targets_N, temperatures_N, entropy_gradient)
    temperatures = repeat(None) if temperatures_N is None else torch.split(temperatures_N, rows)
    parts = [
        checkpoint(_scores, *part, entropy_gradient, use_reentrant=False, preserve_rng_state=False)
        for part in zip(
            torch.split(logits_NV, rows), torch.split(targets_N, rows), temperatures, strict=False
        )
    ]
    logprobs, entropies = zip(*parts, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


def _scores(
    logits_NV: Tensor, targets_N: Tensor, temperatures_N: Tensor | None, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    logits_NV = logits_NV.float()
    if temperatures_N is not None:
        logits_NV = logits_NV / temperatures_N.unsqueeze(-1)
    normalisers_N = logits_NV.logsumexp(-1)
    logprobs_N = logits_NV.gather(-1, targets_N.unsqueeze(-1)).squeeze(-1) - normalisers_N
    # Its gradient keeps two more tensors of this size, so it is computed only for a bonus.
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        means_N = (logits_NV.softmax(-1) * logits_NV).sum(-1)
        entropies_N = normalisers_N - means_N
    return logprobs_N, entropies_N


def _temperatures(batch: MicroBatch, device: torch.device) -> Tensor | None:
    """Return the temperature of each token, whose policy is the one that sampled; None for 1."""
    if (batch.temperatures_N == 1).all():
        return None
    return torch.from_numpy(batch.temperatures_N).to(device)


def model_inputs(model: PreTrainedModel, batch: MicroBatch) -> dict[str, Any]:
    """Return the arguments with which a model computes the tokens of a micro-batch."""
    device = model.device
    inputs: dict[str, Any] = {
        "input_ids": torch.from_numpy(batch.ids_BT).to(device),
        # With a cache, packed chains would see each other.
        "use_cache": False,
    }
    if batch.positions_BT is not None:
        inputs["position_ids"] = torch.from_numpy(batch.positions_BT).to(device)
    if batch.ends_T is not None:
        seen_11TT = _seen(torch.from_numpy(batch.ends_T).to(device))[None, None]
        # Eager attention adds its mask to the scores, in their own type.
        eager = model.config._attn_implementation == "eager"
        inputs["attention_mask"] = _added(seen_11TT, model.dtype) if eager else seen_11TT
    return inputs


def use_attention(model: PreTrainedModel, settings: TrainerSection) -> PreTrainedModel:
    """Return the model with attention computed as the settings say. Raise `ModelUnusable`.

    With `sdpa` it is as transformers chose it, which is eager for a model without it.
    """
    attention, reason = settings.attention, ""
    if attention == "sdpa":
        return model
    device = device_named(settings.device, torch.cuda.is_available)
    if settings.flash and not device.startswith("cuda"):
        reason = f"it needs a GPU, and the device is {device}"
    else:
        try:
            model.set_attn_implementation(attention)
        except (ImportError, ValueError) as error:
            reason = str(error)
    if reason or model.config._attn_implementation != attention:
        text = f"cannot have trainer.attention = {attention}"
        raise ModelUnusable(str(model.name_or_path), f"{text}: {reason or 'its code has its own'}")
    return model


def check_layout(model: PreTrainedModel, layout: Layout) -> None:
    """Raise `ModelUnusable` if a model cannot keep the chains of one row apart."""
    name = str(model.name_or_path)
    if layout != "padded" and not _separates_by_positions(model):
        raise ModelUnusable(name, "its layers need trainer.layout = padded")
    if layout == "tree" and (reason := _cannot_mask(model)):
        raise ModelUnusable(name, f"cannot be trained with trainer.layout = tree: {reason}")


def _seen(ends_T: Tensor) -> Tensor:
    """Return for each token (row) whether it sees another (column): itself, and its ancestors."""
    columns_T = torch.arange(len(ends_T), device=ends_T.device)
    return (columns_T[:, None] >= columns_T) & (columns_T[:, None] < ends_T)


def _added(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where a token is seen, else the least number."""
    return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)


def _separates_by_positions(model: PreTrainedModel) -> bool:
    """Return whether all layers separate chains by their positions.

    Recurrent layers do not: their state would leak from one chain to the next.
    """
    return not any(kind in layer for layer in _layers(model) for kind in _RECURRENT)


def _cannot_mask(model: PreTrainedModel) -> str:
    """Return why a model cannot follow a mask that says which tokens each one sees, or nothing."""
    if not model._supports_attention_backend:
        return "its attention takes no mask of pairs of tokens"
    if (kind := model.config._attn_implementation) not in _MASKED:
        return f"its attention is {kind}, not one of {', '.join(_MASKED)}"
    layers = set(_layers(model)) - {_FULL}
    window = getattr(model.config.get_text_config(), "sliding_window", None)
    if not layers and window and not _layers(model):
        layers = {"sliding_attention"}
    return f"it has layers of {', '.join(sorted(layers))}" if layers else ""


def _layers(model: PreTrainedModel) -> Sequence[str]:
    """Return the kind of each layer, as far as the configuration names them."""
    return getattr(model.config.get_text_config(), "layer_types", None) or ()
