"""The forward pass: log-probs and entropies for trained tokens, by a Hugging Face model.

The output layer gets only the hidden states that predict a trained token. If these are too many, it
gets none: `scores.py` then computes the scores instead, part by part. Called by the back ends.
Dimensions: B rows, T columns, H hidden, N trained tokens, V vocabulary, S scores for a token.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from transformers import PreTrainedModel

from seamlessflow.infra.host import device_named
from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.backends.scores import DividedVocabulary, linear_scores, scores
from seamlessflow.trainer.data.packing import Layout, MicroBatch
from seamlessflow.trainer.parallelism import LOGITS_AT_ONCE
from seamlessflow.trainer.settings import TrainerSection

_RECURRENT = ("linear", "mamba", "conv", "recurrent")
_MASKED = ("sdpa", "eager")
"""Attention implementations that take a mask over token pairs."""
_FULL = "full_attention"
_RESCALED = ("logit", "lm_head_multiplier")
"""Words in the names of model settings that change logits after the output layer."""


class HiddenStates(NamedTuple):
    """The last hidden states for a micro-batch's trained tokens."""

    before_NH: Tensor
    """The states that predict the tokens."""
    behind_NH: Tensor | None
    """The states at the tokens; None if they are not wanted."""

    def each(self, change: Callable[[Tensor], Tensor]) -> "HiddenStates":
        """Return both, changed in the same way."""
        behind_NH = None if self.behind_NH is None else change(self.behind_NH)
        return HiddenStates(change(self.before_NH), behind_NH)


class Forward:
    """One model's forward pass."""

    def __init__(self, model: PreTrainedModel, most: int = LOGITS_AT_ONCE) -> None:
        """Hook into the output layer of `model`; other callers of the model are not affected.

        `most`: most logits that are in float32 at a time.
        """
        self._model = model
        self._most = most
        self._asked: _Asked | None = None
        output: nn.Module = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        output.register_forward_pre_hook(self._select)
        self._divided: DividedVocabulary | None = getattr(model, "divided_vocabulary", None)
        plain = isinstance(output, nn.Linear) or self._divided is not None
        self._in_parts = plain and not _rescales(model)
        if self._in_parts:
            output.register_forward_hook(self._score)
        weight = output.weight
        width = weight.shape[-1] if isinstance(weight, Tensor) else model.config.hidden_size
        self.width = int(width)
        """H, the width of the hidden states that the output layer gets."""

    def __call__(self, batch: MicroBatch, entropy_gradient: bool = False) -> tuple[Tensor, Tensor]:
        """Return log-probs (with gradient) and entropies for N trained tokens, float32."""
        (logprobs_N, entropies_N), _ = self.with_hidden(batch, entropy_gradient)
        return logprobs_N, entropies_N

    def with_hidden(
        self,
        batch: MicroBatch,
        entropy_gradient: bool = False,
        likeliest: int = 0,
        behind: bool = False,
    ) -> tuple[tuple[Tensor, ...], HiddenStates]:
        """Return log-probs and entropies as `__call__` does, and the last hidden states.

        `behind`: also return the hidden states at the tokens. If `likeliest` is not 0, there is a
        third score: the sum of that many largest probabilities.
        """
        asked = _asked(batch, self._model.device, entropy_gradient, likeliest, behind)
        logits_NV, hidden = self._pass(batch, asked)
        if asked.scores_1NS is None:
            scored = scores(
                logits_NV,
                asked.targets_N,
                asked.temperatures_N,
                entropy_gradient,
                self._most,
                likeliest,
            )
            return scored, hidden
        return logits_NV.unbind(-1), hidden

    def hidden(self, batch: MicroBatch, behind: bool = False) -> HiddenStates:
        """Return only the last hidden states, without any logits."""
        asked = _asked(batch, self._model.device, behind=behind)
        return self._pass(batch, replace(asked, scored=False))[1]

    def _pass(self, batch: MicroBatch, asked: "_Asked") -> tuple[Tensor, HiddenStates]:
        """Return logits or scores, and the hidden states that they are computed from."""
        self._asked = asked
        try:
            output = self._model(**model_inputs(self._model, batch))
        finally:
            # States that stay here would keep the activations of the whole pass.
            self._asked = None
        name = str(self._model.name_or_path)
        if asked.hidden_NH is None:
            raise ModelUnusable(name, "has no call of its output")
        if asked.scores_1NS is not None and output.logits is not asked.scores_1NS:
            reason = "changes logits behind its output layer, so they cannot be computed in parts"
            raise ModelUnusable(name, f"{reason}: lower trainer.micro_batch_tokens")
        return output.logits[0], HiddenStates(asked.hidden_NH, asked.behind_NH)

    def _select(self, layer: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Any, ...] | None:
        """Let the layer compute logits only for trained tokens, or none: see `_score`."""
        if (asked := self._asked) is None:
            return None
        hidden_BTH, *others = arguments
        hidden_NH = asked.hidden_NH = _at(hidden_BTH, asked.rows_N, asked.columns_N)
        if asked.behind_N is not None:
            asked.behind_NH = _at(hidden_BTH, asked.rows_N, asked.behind_N)
        alone = not asked.scored or self._too_many(layer, asked)
        return (hidden_NH[:0] if alone else hidden_NH).unsqueeze(0), *others

    def _score(self, layer: nn.Module, arguments: tuple[Any, ...], _: object) -> Tensor | None:
        """Return scores (1, N, S) instead of logits, if there are too many logits.

        This runs inside the model's pass: there FSDP2 has the whole weights, and expects a gradient
        for its root's output.
        """
        asked = self._asked
        if asked is None or asked.hidden_NH is None or not self._too_many(layer, asked):
            return None
        # A layer that shares its weight with the embedding may be called with it.
        weight_VH = cast(
            Tensor,
            next((argument for argument in arguments[1:] if argument is not None), layer.weight),
        )
        scored = linear_scores(
            asked.hidden_NH,
            weight_VH,
            cast(Tensor | None, layer.bias),
            asked.targets_N,
            asked.temperatures_N,
            asked.entropy_gradient,
            self._most,
            self._divided,
            asked.likeliest,
        )
        # Not a view into another tensor: FSDP2 could not hook into that.
        asked.scores_1NS = torch.stack([column_N[None] for column_N in scored], -1)
        return asked.scores_1NS

    def _too_many(self, layer: nn.Module, asked: "_Asked") -> bool:
        """Return whether logits must be computed in parts."""
        if not (self._in_parts and asked.scored):
            return False
        divided = self._divided
        vocabulary = len(cast(Tensor, layer.weight)) if divided is None else divided.size
        return len(asked.targets_N) * vocabulary > self._most


@dataclass(slots=True)
class _Asked:
    """A pass: where its trained tokens are, and what the hooks return for them."""

    rows_N: Tensor
    columns_N: Tensor
    targets_N: Tensor
    temperatures_N: Tensor | None
    entropy_gradient: bool
    likeliest: int
    behind_N: Tensor | None
    """The tokens' columns, if the states there are wanted."""
    scored: bool = True
    """False: only hidden states are wanted."""
    hidden_NH: Tensor | None = None
    behind_NH: Tensor | None = None
    scores_1NS: Tensor | None = None


def _asked(
    batch: MicroBatch,
    device: torch.device,
    entropy_gradient: bool = False,
    likeliest: int = 0,
    behind: bool = False,
) -> _Asked:
    arrays = (batch.rows_N, batch.columns_N, batch.targets_N)
    rows_N, columns_N, targets_N = (torch.from_numpy(array).to(device) for array in arrays)
    return _Asked(
        rows_N,
        columns_N,
        targets_N,
        _temperatures(batch, device),
        entropy_gradient,
        likeliest,
        torch.from_numpy(batch.behind_N).to(device) if behind else None,
    )


def _at(hidden_BTH: Tensor, rows_N: Tensor, columns_N: Tensor) -> Tensor:
    """Return the hidden states (N, H) at these places.

    An embedding and not an index: with layout tree a place may predict several tokens. The backward
    pass of an index adds their gradients in any order, if several threads compute.
    """
    return embedding(rows_N * hidden_BTH.shape[1] + columns_N, hidden_BTH.flatten(0, 1))


def _rescales(model: PreTrainedModel) -> bool:
    """Return whether a model's configuration changes logits after the output layer."""
    config = model.config.get_text_config()
    scales = (
        value for name, value in vars(config).items() if any(part in name for part in _RESCALED)
    )
    return any(isinstance(value, int | float) and value not in (False, 1) for value in scales)


def _temperatures(batch: MicroBatch, device: torch.device) -> Tensor | None:
    """Return the temperature that each token was sampled at; None if all are 1."""
    if (batch.temperatures_N == 1).all():
        return None
    return torch.from_numpy(batch.temperatures_N).to(device)


def model_inputs(model: PreTrainedModel, batch: MicroBatch) -> dict[str, Any]:
    """Return the arguments with which a model computes a micro-batch's tokens."""
    device = model.device
    inputs: dict[str, Any] = {
        "input_ids": torch.from_numpy(batch.ids_BT).to(device),
        # With a cache, packed chains would see each other.
        "use_cache": False,
    }
    if batch.positions_BT is not None:
        inputs["position_ids"] = torch.from_numpy(batch.positions_BT).to(device)
    if batch.ends_BT is not None:
        check_layout(model, "tree")
        seen_B1TT = _seen(torch.from_numpy(batch.ends_BT).to(device)).unsqueeze(1)
        # Eager attention adds its mask to the scores, in their own type. So does `sdpa` on a CPU:
        # given a mask of booleans, each layer would make and keep its own.
        added = model.config._attn_implementation == "eager" or device.type == "cpu"
        inputs["attention_mask"] = _added(seen_B1TT, model.dtype) if added else seen_B1TT
    return inputs


def use_attention(model: PreTrainedModel, settings: TrainerSection) -> PreTrainedModel:
    """Return the model with attention computed as the settings say. Raise `ModelUnusable`.

    With `sdpa` it is transformers' choice, which is eager for a model that lacks `sdpa`.
    """
    attention = settings.attention
    reason = ""
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
    """Raise `ModelUnusable` if a model cannot keep a row's chains apart."""
    name = str(model.name_or_path)
    if layout in ("packed", "tree") and not _separates_by_positions(model):
        raise ModelUnusable(name, "its layers need trainer.layout = padded")
    if layout == "tree" and (reason := cannot_mask(model)):
        raise ModelUnusable(name, f"cannot be trained with trainer.layout = tree: {reason}")


def cannot_mask(model: PreTrainedModel) -> str:
    """Return why a model cannot follow a mask over token pairs; empty if it can."""
    if not model._supports_attention_backend:
        return "its attention takes no mask of pairs of tokens"
    if (kind := model.config._attn_implementation) not in _MASKED:
        return f"its attention is {kind}, not one of {', '.join(_MASKED)}"
    layers = set(_layers(model)) - {_FULL}
    window = getattr(model.config.get_text_config(), "sliding_window", None)
    if not layers and window and not _layers(model):
        layers = {"sliding_attention"}
    return f"it has layers of {', '.join(sorted(layers))}" if layers else ""


def _seen(ends_BT: Tensor) -> Tensor:
    """Return, as (B, T, T), which tokens (last) each token sees: itself and its ancestors."""
    columns_T = torch.arange(ends_BT.shape[-1], device=ends_BT.device)
    return (columns_T[:, None] >= columns_T) & (columns_T[:, None] < ends_BT.unsqueeze(1))


def _added(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where a token is seen, else the lowest number in `dtype`."""
    return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)


def _separates_by_positions(model: PreTrainedModel) -> bool:
    """Return whether all layers separate chains by their positions.

    Recurrent layers do not: their state would leak from one chain to the next.
    """
    return not any(kind in layer for layer in _layers(model) for kind in _RECURRENT)


def _layers(model: PreTrainedModel) -> Sequence[str]:
    """Return each layer's kind, as far as the configuration names them."""
    return getattr(model.config.get_text_config(), "layer_types", None) or ()
