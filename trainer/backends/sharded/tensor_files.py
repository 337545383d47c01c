"""Safetensors files that several ranks write at the same time, and a published model's files.

Each rank writes its parts of the tensors. Each tensor's place follows from names, types and shapes,
so ranks need neither values nor messages from others. The bytes are the same as
`safetensors.torch.save_file` writes for whole tensors. The format:
https://huggingface.co/docs/safetensors (a length, a header in JSON, the tensors). A model's files
are the same as `save_pretrained` writes, known before any tensor is there. Called by the back ends.
"""

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from struct import Struct

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import remove_tied_weights_from_state_dict

from seamlessflow.trainer.backends.model import DTYPES, write_configuration
from seamlessflow.trainer.backends.sharded.parts import TensorPart, TensorParts
from seamlessflow.trainer.backends.sharded.shards import INDEX, SINGLE
from seamlessflow.trainer.parallelism import Dtype

MOST_BYTES = 5_000_000_000
"""Most bytes in a file, unless a single tensor has more."""
_METADATA = {"format": "pt"}
MOST_ELEMENTS = 1 << 22
"""Most elements that are converted or moved to the host at a time: 16 MiB in float32."""
_LENGTH = Struct("<Q")
_ALIGNED = 8
_ORDER = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.float16, torch.bfloat16),
    *(torch.int32, torch.float32, torch.float64, torch.int64),
)
"""Types as the format's library orders them; tensors with the last type come first in a file."""
_KINDS = {"bool": "BOOL", "uint": "U", "int": "I", "float": "F", "bfloat": "BF"}
_DIGITS = "0123456789"


class ModelFiles:
    """One model's files."""

    def __init__(
        self, model: PreTrainedModel, dtype: Dtype, names: Mapping[str, str], most_bytes: int
    ) -> None:
        """`names`: the model's own name for each tensor, by its name in the files."""
        self._model = model
        self._dtype = dtype
        self._names = names
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

    def write(self, directory: Path, parts: TensorParts, leads: bool) -> None:
        """Write this rank's parts; `parts` has them by the tensors' names in the model.

        Rank 0 (`leads`) also writes configuration and index. Every rank must call it. Raise
        OSError.
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
    """Return a model's files, with `dtype` elements. The model's tensors need no memory.

    None if the files have other tensors than the model: then whole tensors must be converted.
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


def write_tensors(
    path: Path,
    parts: TensorParts,
    leads: bool,
    dtype: torch.dtype | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write this rank's parts of a file's tensors, as `dtype` if given, and force them to disk.

    The file is whole once each rank has returned. All ranks name the same tensors. Rank 0 (`leads`)
    also writes the header, and whole tensors. Raise OSError.
    """
    types = {name: dtype or part.values.dtype for name, part in parts.items()}
    header, places, size = _layout(parts, types, metadata)
    with _opened(path) as file:
        if leads:
            os.ftruncate(file, size)
            _write(file, memoryview(header), 0)
        for name, place in places.items():
            if leads or not parts[name].whole:
                _write_part(file, place, parts[name], types[name])
        os.fsync(file)


def _empty(tensor: torch.Tensor, dtype: Dtype) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=DTYPES[dtype], device="meta")


def _layout(
    parts: TensorParts, types: Mapping[str, torch.dtype], metadata: Mapping[str, str] | None
) -> tuple[bytes, Mapping[str, int], int]:
    """Return a file's header, each tensor's place, and the file's size."""
    facts: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    begins = {}
    end = 0
    for name in sorted(parts, key=lambda name: (-_ORDER.index(types[name]), name.encode())):
        begins[name] = end
        shape = parts[name].shape
        end += prod(shape) * types[name].itemsize
        offsets = [begins[name], end]
        facts[name] = {"dtype": _type_name(types[name]), "shape": shape, "data_offsets": offsets}
    text = json.dumps(facts, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNED)
    start = _LENGTH.size + len(text)
    places = {name: start + begin for name, begin in begins.items()}
    return _LENGTH.pack(len(text)) + text, places, start + end


def _type_name(dtype: torch.dtype) -> str:
    """Return the format's name for a type: a kind and how many bits it has."""
    name = str(dtype).removeprefix("torch.")
    kind = name.rstrip(_DIGITS)
    return f"{_KINDS[kind]}{name.removeprefix(kind)}"


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Yield a file in which other processes write too, made if it is not there."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            # Without a lock an NFS client writes whole pages, with zeros for another host's bytes.
            fcntl.lockf(file, fcntl.LOCK_SH)
        except OSError as error:
            if error.errno != errno.ENOSYS:  # else the file system has no locks, and needs none
                raise
        yield file
    finally:
        os.close(file)


def _write_part(file: int, place: int, part: TensorPart, dtype: torch.dtype) -> None:
    """Write a part of a tensor that begins at `place`."""
    if not part.values.numel():
        return
    size = dtype.itemsize
    runs = prod(part.shape[: part.dimension])
    apart = prod(part.shape[part.dimension :]) * size
    place += part.first * prod(part.shape[part.dimension + 1 :]) * size
    # Elements of a run follow each other in the whole tensor; rows are one run.
    values = part.values.reshape(runs, -1)
    length = values.shape[1]
    most = max(1, MOST_ELEMENTS // length)
    for run in range(0, runs, most):
        for begin in range(0, length, MOST_ELEMENTS):
            block = values[run : run + most, begin : begin + MOST_ELEMENTS]
            host = block.to("cpu", dtype).contiguous().view(torch.uint8).numpy()
            for number, data in enumerate(host, run):
                _write(file, memoryview(data), place + number * apart + begin * size)


def _write(file: int, data: memoryview, place: int) -> None:
    while data:
        written = os.pwrite(file, data, place)
        data = data[written:]
        place = place + written
