"""The model that is trained: all of it, or an adapter on it. Called by the back ends.

An adapter's checkpoint holds no base model, so it notes the base model's hash.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from torch import Tensor
from transformers import PreTrainedModel

from seamlessflow.infra.weights.tensors import tensors_hash
from seamlessflow.trainer.backends.adapter.lora import adapter_tensors, begin, write_adapter
from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.backends.model import load_model, write_model
from seamlessflow.trainer.parallelism import Dtype
from seamlessflow.trainer.settings import TrainerSection

IDENTITY = "adapter.json"
"""File in an adapter's checkpoint: the base model's hash, and the adapter's rank and scale."""


@dataclass(frozen=True, slots=True)
class PolicyModel:
    """A directory's model, and its parts that are trained, saved and published."""

    directory: Path
    settings: TrainerSection

    def load(self) -> PreTrainedModel:
        """Return the model on the host, with all untrained parameters frozen.

        The parameters have no memory yet if the back end shards the model. Raise `ModelUnusable`.
        """
        settings = self.settings
        empty = self.settings.by_parts
        if not settings.adapter.used:
            return load_model(self.directory, settings.master_dtype, empty)
        if find_spec("peft") is None:
            reason = "trainer.adapter needs peft: install seamlessflow[adapter]"
            raise ModelUnusable(str(self.directory), reason)
        # Not at the top: peft need not be installed to train whole models.
        from seamlessflow.trainer.backends.adapter.peft_layers import inject

        # The base model is never updated, so it needs no more digits than its computation.
        model = load_model(self.directory, settings.compute, empty)
        inject(model, self.directory, settings.adapter, settings.master_dtype)
        return model

    def begun(self, model: PreTrainedModel) -> PreTrainedModel:
        """Return the placed model with its adapter at its initial weights."""
        begin(model, self.settings.seed)
        return model

    def tensors(self, model: PreTrainedModel) -> Mapping[str, Tensor]:
        """Return the tensors to publish, by their names in files: the adapter's, or the model's."""
        return adapter_tensors(model) if self.settings.adapter.used else model.state_dict()

    def write(self, model: PreTrainedModel, weights: Mapping[str, Tensor], directory: Path) -> None:
        """Write weights to publish: the whole model, or only the adapter."""
        dtype = self.published_dtype
        if self.settings.adapter.used:
            write_adapter(self.settings.adapter, self.directory, weights, dtype, directory)
        else:
            write_model(model, weights, dtype, directory)

    @property
    def published_dtype(self) -> Dtype:
        """Return the element type for published weights."""
        return self.settings.weights_dtype or self.settings.dtype

    def save(self, directory: Path) -> None:
        """Note in an adapter's checkpoint its base model, rank and scale."""
        if self.settings.adapter.used:
            text = json.dumps(self._identity(), indent=1, sort_keys=True)
            (directory / IDENTITY).write_text(text, encoding="utf-8")

    def check(self, directory: Path) -> None:
        """Raise `ModelUnusable` if a checkpoint's adapter has another base model, rank or scale."""
        path = directory / IDENTITY
        if not self.settings.adapter.used and not path.exists():
            return
        try:
            saved = json.loads(path.read_bytes())
            identity = self._identity()
            differs = [
                name for name in identity.keys() | saved if identity.get(name) != saved.get(name)
            ]
        except FileNotFoundError:
            differs = ["adapter"]
        except (OSError, ValueError, AttributeError) as error:
            raise ModelUnusable(str(directory), f"{IDENTITY} cannot be read: {error}") from error
        if differs:
            raise ModelUnusable(
                str(directory),
                f"it was trained with another {', '.join(sorted(differs))}: set policy.model and "
                "trainer.adapter as they were, or begin in another directory",
            )

    def _identity(self) -> Mapping[str, object]:
        adapter = self.settings.adapter
        base = tensors_hash(self.directory) if adapter.used else ""
        return {"base model": base, "rank": adapter.rank, "scale": adapter.scale}
