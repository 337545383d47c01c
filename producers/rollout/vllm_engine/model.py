"""Facts about the model in a Hugging Face directory, and its tensors' shapes."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from seamlessflow.infra.disk import link_or_copy
from seamlessflow.infra.weights.adapter import AdapterInvalid, fitting
from seamlessflow.producers.rollout.engine.errors import WeightsRejected


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts that the engine needs before vLLM has loaded the model; `shapes` by tensor name."""

    vocabulary: int
    dtype: str
    shapes: Mapping[str, tuple[int, ...]]


def read_model(directory: Path) -> ModelFacts:
    """Return the facts from `config.json` and the tensor files. Raises `WeightsRejected`."""
    try:
        whole = json.loads((directory / "config.json").read_bytes())
        config = {**whole, **whole.get("text_config", {})}
        dtype = config.get("dtype") or config.get("torch_dtype") or "float32"
        return ModelFacts(int(config["vocab_size"]), str(dtype), _shapes(directory))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsRejected(directory, f"config.json: {error!r}") from error


def require_same(directory: Path, wanted: ModelFacts) -> None:
    """Raise `WeightsRejected` unless a directory holds exactly the model's tensors, in its shapes.

    If tensors were missing, the engine would go on with their old values.
    """
    shapes = _shapes(directory)
    names = wanted.shapes.keys()
    for what, differ in (("missing", names - shapes), ("unknown", shapes.keys() - names)):
        if differ:
            raise WeightsRejected(directory, f"{what} tensors: {', '.join(sorted(differ)[:3])}")
    for name, shape in wanted.shapes.items():
        if shapes[name] != shape:
            reason = f"{name} has the shape {list(shapes[name])}, the model's is {list(shape)}"
            raise WeightsRejected(directory, reason)


def adapter_rank(directory: Path, base: ModelFacts) -> int:
    """Return an adapter's rank. Raise `WeightsRejected` unless it fits its base."""
    try:
        return fitting(directory, _shapes(directory), base.shapes).rank
    except AdapterInvalid as error:
        raise WeightsRejected(directory, f"the adapter cannot be used: {error}") from error


def keep(directory: Path, target: Path) -> None:
    """Link all files of a directory into `target`; what was in `target` is deleted.

    The trainer deletes old weights once it has published newer ones, perhaps before the server has
    started and read them.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in directory.iterdir():
        link_or_copy(file, target / file.name)


def _shapes(directory: Path) -> Mapping[str, tuple[int, ...]]:
    """Return each tensor's shape; only the safetensors files' headers are read."""
    shapes: dict[str, tuple[int, ...]] = {}
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise WeightsRejected(directory, "there is no safetensors file")
    for file in files:
        try:
            with safe_open(file, "numpy") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - it is no mapping
                    shapes[name] = tuple(tensors.get_slice(name).get_shape())
        except (OSError, SafetensorError) as error:
            raise WeightsRejected(directory, f"{file.name} cannot be read: {error}") from error
    return shapes
