"""Layout tree: values and gradients are those of the chains computed one by one."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from seamlessflow.recorded.retrain.tensors import step_tensors
from seamlessflow.trainer.backends.backend import ModelUnusable, StepInput
from seamlessflow.trainer.backends.forward import check_layout, model_inputs
from seamlessflow.trainer.backends.step_message import from_arrays, shares, to_arrays
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import Chain, credited
from seamlessflow.trainer.data.packing import Layout, MicroBatch, pack
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.chains import forked_chains
from tests.builders.trainer.models import exact_model, open_tiny, write_tiny, write_windowed

Gradient = dict[str, Tensor]
SETTINGS = TrainerSection(device="cpu", threads=1, layout="tree")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


def made(seed: int = 0) -> list[Chain]:
    """Return chains of two groups of three sessions, with an advantage for each token."""
    random = np.random.default_rng(seed)
    return [credited(chain, random.normal(0, 1, chain.trained())) for chain in forked_chains(seed)]


def step(layout: Layout, budget: int, seed: int = 0) -> StepInput:
    return StepInput(pack(made(seed), budget, layout), [], 0, 0.05)


def gradient(backend: TorchBackend, step_input: StepInput) -> Gradient:
    *_, gradients = backend.gradients(step_input)
    return {name: value.clone() for name, value in gradients.items()}


def weighted(
    model: PreTrainedModel, batches: Sequence[MicroBatch]
) -> tuple[dict[tuple[int, int], float], Gradient]:
    """Return each trained token's log-prob, by chain and place, and the gradient of their sum by
    advantages, in the model's own type.
    """
    values: dict[tuple[int, int], float] = {}
    for batch in batches:
        logits_BTV = model(**model_inputs(model, batch)).logits
        table_NV = logits_BTV[batch.rows_N, batch.columns_N].log_softmax(-1)
        said_N = table_NV.gather(-1, torch.from_numpy(batch.targets_N)[:, None])[:, 0]
        torch.autograd.backward((said_N * torch.from_numpy(batch.advantages_N)).sum())
        names = zip(batch.chains_N.tolist(), batch.places_N.tolist(), strict=True)
        values.update(zip(names, said_N.tolist(), strict=True))
    gradients = {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    model.zero_grad(set_to_none=True)
    return values, gradients


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("budget", [40, 1000])
@pytest.mark.parametrize("layout", get_args(Layout))
def test_in_float64_values_and_gradients_are_those_of_single_chains(
    layout: Layout, budget: int, attention: str
) -> None:
    network = exact_model()
    network.set_attn_implementation(attention)
    chains = made()
    alone = [
        replace(batch, chains_N=np.full_like(batch.chains_N, number))
        for number, chain in enumerate(chains)
        for batch in pack([chain], 1000, "padded")
    ]
    wanted, exact = weighted(network, alone)
    values, gradients = weighted(network, pack(chains, budget, layout))
    assert values == pytest.approx(wanted, abs=1e-10)
    for name in exact:
        torch.testing.assert_close(gradients[name], exact[name], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("budget", [25, 60, 1000])
def test_gradients_of_a_step_are_those_of_the_other_layouts(
    model: Path, seed: int, budget: int
) -> None:
    backend = TorchBackend(model, SETTINGS)
    whole = gradient(backend, step("padded", 1000, seed))
    for layout in ("tree", "auto"):
        gradients = gradient(backend, step(layout, budget, seed))
        for name in whole:
            torch.testing.assert_close(gradients[name], whole[name], atol=1e-6, rtol=1e-6)


def test_two_ranks_have_the_gradient_of_one(model: Path) -> None:
    backend = TorchBackend(model, SETTINGS)
    whole = gradient(backend, step("tree", 1000))
    sent = [from_arrays(to_arrays(share, 1))[0] for share in shares(step("tree", 40), 2)]
    assert all(len(share.micro_batches) > 1 for share in sent)
    part, other = (gradient(backend, share) for share in sent)
    for name in whole:
        torch.testing.assert_close(part[name] + other[name], whole[name], atol=1e-6, rtol=1e-6)


def test_a_step_that_is_executed_again_has_equal_tensors(model: Path) -> None:
    executions = [
        step_tensors(TorchBackend(model, SETTINGS), step("tree", 60), 0, None) for _ in range(2)
    ]
    assert executions[0].hashes == executions[1].hashes
    assert "input ends_BT of micro-batch 0" in executions[0].hashes


def test_recomputed_activations_give_the_same_gradient(model: Path) -> None:
    recomputing = replaced(gradient_checkpointing=True)
    kept = gradient(TorchBackend(model, SETTINGS), step("tree", 60))
    again = gradient(TorchBackend(model, recomputing), step("tree", 60))
    for name in kept:
        torch.testing.assert_close(again[name], kept[name], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
def test_half_precision_computes_trees(model: Path, compute: str) -> None:
    settings = replaced(dtype=compute)
    metrics, wanted = (
        TorchBackend(model, settings).train(step(layout, 1000)) for layout in ("tree", "packed")
    )
    assert metrics["loss"] == pytest.approx(wanted["loss"], abs=0.02)
    assert metrics["grad_norm"] == pytest.approx(wanted["grad_norm"], rel=0.05)


def test_layers_with_a_sliding_window_are_refused(tmp_path: Path) -> None:
    directory = write_windowed(tmp_path, window=3)
    with pytest.raises(ModelUnusable, match=r"trainer\.layout = tree: it has layers of sliding_"):
        TorchBackend(directory, SETTINGS)


def test_without_a_named_layout_a_model_that_cannot_have_trees_is_padded(
    model: Path, tmp_path: Path
) -> None:
    other = write_windowed(tmp_path, window=3)
    reference = replaced(layout="auto", advantage="gae", kl_penalty=0.1, reference=other)
    assert TorchBackend(model, replaced(layout="auto")).layout == "auto"
    assert TorchBackend(model, reference).layout == "padded"
    assert TorchBackend(other, replaced(layout="auto")).layout == "padded"
    with pytest.raises(ModelUnusable, match="it has layers of sliding_attention"):
        TorchBackend(other, replaced(layout="auto")).train(step("auto", 1000))


def test_a_reference_that_cannot_have_trees_is_refused(model: Path, tmp_path: Path) -> None:
    other = write_windowed(tmp_path, window=3)
    settings = replaced(advantage="gae", kl_penalty=0.1, reference=other)
    with pytest.raises(ModelUnusable, match=f"{other}.*layout = tree"):
        TorchBackend(model, settings)


def test_attention_without_a_mask_is_refused(model: Path) -> None:
    network = open_tiny(model)
    network.config._attn_implementation = "flash_attention_2"
    check_layout(network, "packed")
    with pytest.raises(ModelUnusable, match="its attention is flash_attention_2, not one of sdpa"):
        check_layout(network, "tree")


def replaced(**changes: Any) -> TrainerSection:
    section = {"device": "cpu", "threads": 1, "layout": "tree"}
    return TrainerSection.model_validate({**section, **changes})


def test_trees_pass_between_ranks_unchanged() -> None:
    step_input = step("tree", 60)
    received, _ = from_arrays(to_arrays(step_input, 1))
    for batch, other in zip(step_input.micro_batches, received.micro_batches, strict=True):
        for name in {field.name for field in fields(MicroBatch)} - {"columns"}:
            np.testing.assert_array_equal(getattr(batch, name), getattr(other, name))
