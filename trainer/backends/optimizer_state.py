"""AdamW, and the back end's part of a checkpoint: weights, moments, random state as safetensors.

From these files training goes on as if it had not stopped. Names in `optimizer.safetensors` are
`<moment>/<parameter>`. Called by the back ends.
"""

from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import Parameter
from torch.optim import AdamW, Optimizer

from seamlessflow.trainer.backends.adapter.lora import trained
from seamlessflow.trainer.backends.backend import ModelUnusable
from seamlessflow.trainer.backends.model import forget_copies
from seamlessflow.trainer.backends.sharded.parts import FileParts, TensorPart, part_of, read_part
from seamlessflow.trainer.backends.sharded.tensor_files import write_tensors
from seamlessflow.trainer.settings import OptimizerSection

WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
RANDOM = "random.safetensors"
CRITIC = "critic-"
"""File prefix for a critic."""
REFERENCE = "reference-"
"""File prefix for a reference that is renewed."""
OPPONENT = "opponent-"
"""File prefix for earlier policies."""


def adamw(parameters: Iterable[Parameter], settings: OptimizerSection, lr: float) -> Optimizer:
    """Return AdamW with these settings and the learning rate `lr`.

    On a CPU it is torch's fused kernel: one pass over the memory, instead of ten.
    """
    trained = list(parameters)
    return AdamW(
        trained,
        lr=lr,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        fused=all(parameter.device.type == "cpu" for parameter in trained),
    )


def copied(model: nn.Module, optimizer: Optimizer, prefix: str = "") -> FileParts:
    """Return a host copy of all that this rank has to save.

    `prefix`: the file names begin with it.
    """
    parameters = _parameters(model)
    moments = {
        f"{moment}/{name}": part_of(value).copied()
        for name, parameter in parameters.items()
        for moment, value in optimizer.state.get(parameter, {}).items()
    }
    weights = {name: part_of(tensor).copied() for name, tensor in parameters.items()}
    return {f"{prefix}{WEIGHTS}": weights, f"{prefix}{OPTIMIZER}": moments}


class Keeping:
    """State and gradients of trained models, for back ends with whole models or FSDP2's rows.

    Megatron-core's back end overrides all of it.
    """

    def __init__(self, clip_norm: float) -> None:
        """`clip_norm`: largest norm for a model's gradient."""
        self._clip_norm = clip_norm

    def copied(self, model: nn.Module, optimizer: Optimizer, prefix: str = "") -> FileParts:
        """Return what the function `copied` returns."""
        return copied(model, optimizer, prefix)

    def load(
        self, directory: Path, model: nn.Module, optimizer: Optimizer, prefix: str = ""
    ) -> None:
        """Put this rank's part of model and optimizer back. Raise `ModelUnusable`."""
        load_state(directory, model, optimizer, prefix)

    def clipped(self, model: nn.Module, scale: float = 1.0) -> float:
        """Undo the gradients' scale and clip them; return the norm before."""
        parameters = trained(model).values()
        for parameter in parameters if scale != 1 else ():
            if parameter.grad is not None:
                parameter.grad.div_(scale)
        return float(full(nn.utils.clip_grad_norm_(parameters, self._clip_norm)))


def random_state() -> FileParts:
    """Return the random generators' states, by file; only rank 0's are saved."""
    random = {"cpu": part_of(torch.get_rng_state())}
    if torch.cuda.is_available():
        random["cuda"] = part_of(torch.cuda.get_rng_state())
    return {RANDOM: random}


def save_state(directory: Path, files: FileParts, leads: bool) -> None:
    """Write this rank's part of files as `copied` returns them; `leads` as for `write_tensors`."""
    for name, parts in files.items():
        write_tensors(directory / name, parts, leads)


class SavedState:
    """A checkpoint's weights and moments; a rank reads its parts."""

    def __init__(self, directory: Path, names: Set[str], prefix: str = "") -> None:
        """`names`: the model's parameter names; `prefix`: the files' prefix.

        Raise `ModelUnusable`.
        """
        self._directory = directory
        self._what = f"its {prefix[:-1]}" if prefix else "it"
        self._weights, self._moments = (
            directory / f"{prefix}{file}" for file in (WEIGHTS, OPTIMIZER)
        )
        if wrong := sorted(self._keys(self._weights) ^ names):
            settings = {CRITIC: "critic.kind and .model", REFERENCE: "reference"}
            setting = settings.get(prefix, "pairs.opponents")
            remedy = f"set trainer.{setting} as they were, or begin in another directory"
            another = f"{self._what} is another one, {remedy}"
            whose = another if prefix else "is of another model"
            raise ModelUnusable(str(directory), f"{whose}: {', '.join(wrong[:3])}")
        self.moments = sorted(self._keys(self._moments))
        """All moments' names, `<moment>/<parameter>`."""

    def read_weight(self, name: str, part: TensorPart) -> None:
        """Read a part of a parameter into its memory. Raise `ModelUnusable`."""
        self._read(self._weights, name, part)

    def read_moment(self, name: str, part: TensorPart) -> None:
        """Read a part of a moment into its memory. Raise `ModelUnusable`."""
        self._read(self._moments, name, part)

    def _keys(self, file: Path) -> set[str]:
        with self._readable(), safe_open(file, framework="pt") as opened:
            return set(opened.keys())

    def _read(self, file: Path, name: str, part: TensorPart) -> None:
        # Opened for each tensor: what is read from a mapped file counts as memory until it closes.
        with self._readable(), safe_open(file, framework="pt") as opened:
            read_part(opened, name, part)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, SafetensorError) as error:
            reason = f"{self._what} cannot be read: {error}"
            raise ModelUnusable(str(self._directory), reason) from error


def load_state(directory: Path, model: nn.Module, optimizer: Optimizer, prefix: str = "") -> None:
    """Put this rank's part of model and optimizer back. Raise `ModelUnusable`."""
    parameters = _parameters(model)
    saved = SavedState(directory, parameters.keys(), prefix)
    for name, parameter in parameters.items():
        saved.read_weight(name, part_of(parameter))
    optimizer.state.clear()
    for key in saved.moments:
        moment, _, name = key.partition("/")
        parameter = parameters[name]
        # AdamW keeps the count of steps on the host, in float32.
        value = torch.zeros(()) if moment == "step" else torch.zeros_like(parameter)
        saved.read_moment(key, part_of(value))
        optimizer.state[parameter][moment] = value


def load_random(directory: Path) -> None:
    """Restore the random generators' states. Raise `ModelUnusable`."""
    try:
        random = load_file(directory / RANDOM)
    except (OSError, SafetensorError) as error:
        raise ModelUnusable(str(directory), f"it cannot be read: {error}") from error
    torch.set_rng_state(random["cpu"])
    if "cuda" in random and torch.cuda.is_available():
        torch.cuda.set_rng_state(random["cuda"])


def full(tensor: Tensor) -> Tensor:
    """Return a sharded tensor as a whole (every rank must call it), any other as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _parameters(model: nn.Module) -> dict[str, Parameter]:
    """Return the parameters that the optimizer knows, by name."""
    forget_copies(model)
    return trained(model)
