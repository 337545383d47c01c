"""What a Hugging Face directory says of its model: facts, and the form of its tensors."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from producers.rollout.engine.errors import WeightsRejected


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """`shapes`: of every tensor, by name."""

    vocabulary: int
    dtype: str
    shapes: Mapping[str, tuple[int, ...]]


def read_model(directory: Path) -> ModelFacts:
    """Raises `WeightsRejected`."""
    try:
        whole = json.loads((directory / "config.json").read_bytes())
        config = {**whole, **whole.get("text_config", {})}
        dtype = config.get("dtype") or config.get("torch_dtype") or "float32"
        return ModelFacts(int(config["vocab_size"]), str(dtype), _shapes(directory))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsRejected(directory, f"config.json: {error!r}") from error


def require_same(directory: Path, wanted: ModelFacts) -> None:
    """Raises `WeightsRejected` unless it holds just the tensors of a model, in their shapes.

    An engine that gets fewer would go on with old values in those that are missing.
    """
    found = _shapes(directory)
    names = wanted.shapes.keys()
    for what, differ in (("missing", names - found), ("unknown", found.keys() - names)):
        if differ:
            raise WeightsRejected(directory, f"{what} tensors: {', '.join(sorted(differ)[:3])}")
    for name, shape in wanted.shapes.items():
        if found[name] != shape:
            reason = f"{name} has the shape {list(found[name])}, the model's is {list(shape)}"
            raise WeightsRejected(directory, reason)


def keep(directory: Path, target: Path) -> None:
    """Makes `target` a second name of all files in a directory; what was there is deleted.

    Old weights are deleted once newer ones are there, and a server takes a while to start.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in directory.iterdir():
        try:
            os.link(file, target / file.name)
        except OSError:  # another file system
            shutil.copy2(file, target)


def _shapes(directory: Path) -> Mapping[str, tuple[int, ...]]:
    """From the headers of the safetensors files alone."""
    found: dict[str, tuple[int, ...]] = {}
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise WeightsRejected(directory, "there is no safetensors file")
    for file in files:
        try:
            with safe_open(file, "numpy") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - it is no mapping
                    found[name] = tuple(tensors.get_slice(name).get_shape())
        except (OSError, SafetensorError) as error:
            raise WeightsRejected(directory, f"{file.name} cannot be read: {error}") from error
    return found
