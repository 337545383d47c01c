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
from seamlessflow.trainer.data.chains import LIKELIEST, Column
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
    section = {"device": "cpu", "threads": 1, "dtype": dtype, "loss": loss, **more}
    return TrainerSection.model_validate(section)


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
    return {
        name: parameter.grad
        for name, parameter in opened.named_parameters()
        if parameter.grad is not None
    }


def gradient(backend: TorchBackend, step_input: StepInput) -> dict[str, Tensor]:
    gradients: dict[str, Tensor] = {}
    for so_far in backend.gradients(step_input):
        # Of a single rank the part is the whole.
        gradients = {
            name: getattr(tensor, "_local_tensor", tensor).clone()
            for name, tensor in so_far.items()
        }
    return gradients


def distance(tensors: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert tensors.keys() == other.keys()
    squares = sum(float((tensors[name] - other[name]).square().sum()) for name in tensors)
    return float((squares / sum(float(tensor.square().sum()) for tensor in other.values())) ** 0.5)


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("tied", [True, False])
def test_the_gradient_of_logits_in_parts_is_that_of_all_logits(
    make: Make, tmp_path: Path, tied: bool, layout: Layout
) -> None:
    model = write_wide(tmp_path, tied)
    step_input = step(layout)
    assert max(map(len, step_input.micro_batches)) * 151_936 > LOGITS_AT_ONCE
    gradients = gradient(make(model, settings(layout=layout)), step_input)
    assert distance(gradients, exact(model)) < 1e-5


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

    backend, step_input = make(wide, settings()), step()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        backend.train(step_input)
    assert max(sizes) <= 151_936 * 16, "the weight itself"


def test_log_probs_and_entropies_without_a_gradient_are_those_of_all_logits(wide: Path) -> None:
    (batch,) = step().micro_batches
    models = open_tiny(wide), open_tiny(wide)
    parts, whole = Forward(models[0], most=1 << 20), Forward(models[1], most=1 << 40)
    with torch.no_grad():
        for scores, other in zip(parts(batch), whole(batch), strict=True):
            torch.testing.assert_close(scores, other, atol=1e-5, rtol=1e-5)


def test_columns_of_parts_are_those_of_all_logits(make: Make, wide: Path) -> None:
    """On every back end, the probability of the likeliest tokens among them."""
    columns = [Column.PROXIMAL, Column.ENTROPY, Column.TOP_SHARE]
    (batch,) = step().micro_batches
    with torch.no_grad():
        wanted, _ = Forward(open_tiny(wide), most=1 << 40).with_hidden(batch, likeliest=LIKELIEST)
    annotated = make(wide, settings()).annotate([batch], columns)
    for name, score_N in zip(columns, wanted, strict=True):
        (column_N,) = annotated[name]
        torch.testing.assert_close(torch.from_numpy(column_N), score_N, atol=1e-5, rtol=1e-5)


def test_a_model_that_changes_its_logits_afterwards_has_them_whole(tmp_path: Path) -> None:
    """Gemma 2 caps them, so what its output layer returns is not what the softmax is of."""
    model = write_wide(tmp_path, tied=True, family="gemma2")
    gradients = gradient(TorchBackend(model, settings()), step())
    assert distance(gradients, exact(model)) < 1e-5
