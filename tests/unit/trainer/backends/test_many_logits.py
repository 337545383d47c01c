"""Tokens and a vocabulary whose logits are too many to be there at once, on every back end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.backends.forward import Forward
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.packing import Layout, pack
from seamlessflow.trainer.parallelism import LOGITS_AT_ONCE
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.chains import some_chains
from tests.builders.trainer.gangs.alone import BACKENDS, Make
from tests.builders.trainer.gangs.own_gang import leave_gang
from tests.builders.trainer.models import open_tiny, write_wide

ENTROPY = 0.1
CHAINS = some_chains(count=24)


@pytest.fixture(params=BACKENDS)
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    yield BACKENDS[request.param]
    leave_gang()


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wide(tmp_path_factory.mktemp("wide"), tied=True)


def settings(dtype: str = "float32", **more: Any) -> TrainerSection:
    loss = {"surrogate": "cloning", "entropy": ENTROPY}
    given = {"device": "cpu", "threads": 1, "dtype": dtype, "loss": loss, **more}
    return TrainerSection.model_validate(given)


def step(layout: Layout = "packed", budget: int = 10_000) -> StepInput:
    return StepInput(pack(CHAINS, budget, layout), [], 0, 1e-3)


def exact(model: Path) -> dict[str, Tensor]:
    """Return the gradient of mean(-log p - c entropy) with all logits of a chain at once."""
    opened = open_tiny(model)
    total = sum(chain.trained() for chain in CHAINS)
    for chain in CHAINS:
        ids = torch.from_numpy(chain.tokens.ids_T.astype(np.int64))
        places = np.flatnonzero(chain.tokens.trained_T)
        logits_TV = opened(input_ids=ids[None], use_cache=False).logits[0]
        table_NV = logits_TV[places - 1].log_softmax(-1)
        logprobs_N = table_NV.gather(-1, ids[places][:, None])
        entropies_N = -(table_NV.exp() * table_NV).sum(-1)
        loss = -(logprobs_N.sum() + ENTROPY * entropies_N.sum()) / total
        torch.autograd.backward(loss)
    return {name: of.grad for name, of in opened.named_parameters() if of.grad is not None}


def gradient(backend: TorchBackend, of: StepInput) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for so_far in backend.gradients(of):
        # Of a single rank the part is the whole.
        found = {name: getattr(one, "_local_tensor", one).clone() for name, one in so_far.items()}
    return found


def distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    squares = sum(float((one[name] - other[name]).square().sum()) for name in one)
    return float((squares / sum(float(of.square().sum()) for of in other.values())) ** 0.5)


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("tied", [True, False])
def test_the_gradient_of_logits_in_parts_is_that_of_all_logits(
    make: Make, tmp_path: Path, tied: bool, layout: Layout
) -> None:
    model = write_wide(tmp_path, tied)
    given = step(layout)
    assert max(map(len, given.micro_batches)) * 151_936 > LOGITS_AT_ONCE
    found = gradient(make(model, settings(layout=layout)), given)
    assert distance(found, exact(model)) < 1e-5


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_in_half_precision_it_is_so_but_for_rounding(make: Make, wide: Path, dtype: str) -> None:
    metrics = make(wide, settings(dtype)).train(step())
    wanted = TorchBackend(wide, settings()).train(step())
    assert metrics["grad_norm"] == pytest.approx(wanted["grad_norm"], rel=0.05)
    assert metrics["loss"] == pytest.approx(wanted["loss"], rel=0.01)
    assert metrics["entropy"] == pytest.approx(wanted["entropy"], rel=0.01)


def test_no_tensor_of_a_pass_has_all_logits(make: Make, wide: Path) -> None:
    sizes: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    backend, given = make(wide, settings()), step()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        backend.train(given)
    assert max(sizes) <= 151_936 * 16, "the weight itself"


def test_log_probs_and_entropies_without_a_gradient_are_those_of_all_logits(wide: Path) -> None:
    (batch,) = step().micro_batches
    models = open_tiny(wide), open_tiny(wide)
    parts, whole = Forward(models[0], most=1 << 20), Forward(models[1], most=1 << 40)
    with torch.no_grad():
        for one, other in zip(parts(batch), whole(batch), strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_a_model_that_changes_its_logits_afterwards_has_them_whole(tmp_path: Path) -> None:
    """Gemma 2 caps them, so what its output layer returns is not what the softmax is of."""
    model = write_wide(tmp_path, tied=True, family="gemma2")
    found = gradient(TorchBackend(model, settings()), step())
    assert distance(found, exact(model)) < 1e-5
