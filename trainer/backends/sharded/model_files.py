"""The files of a published model, known before a tensor is there: names, sizes, an index.

They are those that `save_pretrained` of transformers writes, so that every rank can write its rows
of each. Called by the back ends of gangs.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import remove_tied_weights_from_state_dict

from seamlessflow.trainer.backends.model import DTYPES, write_configuration
from seamlessflow.trainer.backends.sharded.parts import Parts
from seamlessflow.trainer.backends.sharded.shards import INDEX, SINGLE
from seamlessflow.trainer.backends.sharded.tensor_file import write_tensors
from seamlessflow.trainer.parallelism import Dtype

MOST_BYTES = 5_000_000_000
"""Most bytes of a file, unless a tensor alone has more."""
_METADATA = {"format": "pt"}


class ModelFiles:
    """The files of one model."""

    def __init__(
        self, model: PreTrainedModel, dtype: Dtype, names: Mapping[str, str], most_bytes: int
    ) -> None:
        """`names`: the model's own name of each tensor, by its name in the files."""
        self._model, self._dtype, self._names = model, dtype, names
        shapes = model.state_dict()
        empty = {name: _empty(shapes[model_name], dtype) for name, model_name in names.items()}
        pattern = SINGLE.replace(".", "{suffix}.")
        split = split_torch_state_dict_into_shards(
            empty, filename_pattern=pattern, max_shard_size=most_bytes
        )
        self._files: Mapping[str, list[str]] = split.filename_to_tensors
        self._index: str | None = None
        if split.is_sharded:
            facts = {"total_parameters": model.num_parameters(), **split.metadata}
            index = {"metadata": facts, "weight_map": split.tensor_to_filename}
            self._index = json.dumps(index, indent=2, sort_keys=True) + "\n"

    def write(self, directory: Path, parts: Parts, leads: bool) -> None:
        """Write this rank's parts of the tensors, by their names in the model; rank 0 (`leads`)
        also writes configuration and index. Every rank must call it. Raise OSError.
        """
        if leads:
            write_configuration(self._model, self._dtype, directory)
            if self._index is not None:
                (directory / INDEX).write_text(self._index, encoding="utf-8")
        for file, names in self._files.items():
            of_file = {name: parts[self._names[name]] for name in names}
            write_tensors(directory / file, of_file, leads, DTYPES[self._dtype], _METADATA)


def model_files(
    model: PreTrainedModel, dtype: Dtype, most_bytes: int = MOST_BYTES
) -> ModelFiles | None:
    """Return the files of a model, whose tensors need no memory, with elements of `dtype`.

    None if files have other tensors than the model: it needs a conversion of whole tensors.
    """
    tensors = {name: _empty(tensor, dtype) for name, tensor in model.state_dict().items()}
    named = {id(tensor): name for name, tensor in tensors.items()}
    ignored = model._keys_to_ignore_on_save or ()
    kept = {name: tensor for name, tensor in tensors.items() if name not in ignored}
    converted = revert_weight_conversion(model, remove_tied_weights_from_state_dict(kept, model))
    if any(id(tensor) not in named for tensor in converted.values()):
        return None
    names = {name: named[id(tensor)] for name, tensor in converted.items()}
    return ModelFiles(model, dtype, names, most_bytes)


def _empty(tensor: torch.Tensor, dtype: Dtype) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=DTYPES[dtype], device="meta")
