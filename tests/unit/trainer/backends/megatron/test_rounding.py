"""Half precision with Megatron-core: its gradients differ by rounding alone, as torch's do.

An element of bfloat16 has 8 bits, one of float16 has 11. A product rounds its operands and its
result, and what that does to a gradient depends on the model; so the yardstick is the distance of
the torch back end's gradient in the same type from its own in float32.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from torch import Tensor

from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.backends.megatron.megatron_backend import MegatronBackend
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.packing import pack
from seamlessflow.trainer.parallelism import MEGATRON_FAMILIES
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.chains import some_chains, with_advantages
from tests.builders.trainer.gangs.meetings import meeting
from tests.builders.trainer.gangs.own_gang import leave_gang
from tests.builders.trainer.models import write_family

Gradients = Mapping[str, Tensor]

MODELS = 3
"""Models of a family, whose squared distances are summed: those of one vary by half."""
MORE_ROUNDED = 2.5
"""Bound of the ratio of the distances. Autocast of torch rounds what products take and give, ten
tensors a layer; Megatron-core, as FSDP2, also states between layers, and each step of norms,
biases and rotations: as many again, some of which all later layers see."""
FEWER_BITS = 2.0**3
"""Ratio of a rounding in bfloat16 to one in float16."""


@pytest.fixture(autouse=True)
def gang() -> Iterator[None]:
    yield
    leave_gang()


def gradients(model: Path, dtype: str, backend: str) -> Gradients:
    """Return the gradients of a step; copies, by whole tensors."""
    settings = TrainerSection.model_validate(
        {
            "device": "cpu",
            "threads": 1,
            "dtype": dtype,
            "backend": backend,
            # A loss without a ratio, of which no bound would be on either side of a token.
            "loss": {"surrogate": "cloning"},
        }
    )
    chains = with_advantages(some_chains(), [1.0, -1.0, 0.5, -2.0, 0.3, 1.5])
    step = StepInput(pack(chains, 40, "padded"), [], 0, 0.05)
    leave_gang()
    made = (
        MegatronBackend(model, settings, meeting())
        if backend == "megatron"
        else TorchBackend(model, settings)
    )
    *_, gradient = made.gradients(step)
    return {name: tensor.clone() for name, tensor in gradient.items()}


def distance(model: Path, dtype: str, backend: str, exact: Gradients) -> float:
    """Return how far gradients are from exact ones: squares, as a share of those of the latter."""
    gradient = gradients(model, dtype, backend)
    assert gradient.keys() == exact.keys()
    differences = sum(
        float((gradient[name] - tensor).square().sum()) for name, tensor in exact.items()
    )
    return differences / sum(float(tensor.square().sum()) for tensor in exact.values())


@pytest.mark.parametrize("family", MEGATRON_FAMILIES)
def test_gradients_are_as_near_to_exact_ones_as_those_of_the_torch_back_end(
    tmp_path: Path, family: str
) -> None:
    by_torch = coarse = fine = 0.0
    for seed in range(MODELS):
        model = write_family(tmp_path / str(seed), family, seed)
        exact = gradients(model, "float32", "torch")
        by_torch += distance(model, "bfloat16", "torch", exact)
        coarse += distance(model, "bfloat16", "megatron", exact)
        fine += distance(model, "float16", "megatron", exact)
    assert by_torch < coarse < MORE_ROUNDED**2 * by_torch
    # Any other error than that of rounding would not become smaller with more bits.
    assert fine < coarse / (FEWER_BITS / 2) ** 2
