"""Every loss through the model: the same gradient padded, packed, on one rank and on two."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.builders.trainer.chains import some_chains
from tests.builders.trainer.losses import combinations, named
from tests.builders.trainer.models import open_tiny, write_tiny
from trainer.backends.backend import StepInput
from trainer.backends.step_message import shares
from trainer.backends.torch_backend import TorchBackend
from trainer.data.chains import Chain, credited
from trainer.data.credit.columns import Column
from trainer.data.packing import Layout, pack
from trainer.data.units.aggregations import chain_weights
from trainer.data.units.membership import units
from trainer.loss import LossSection
from trainer.settings import TrainerSection

Gradient = dict[str, Tensor]
ANNOTATED = [
    *(LossSection(kl=0.5, kl_estimator=one) for one in ("k2", "k3")),
    *(LossSection(surrogate=one, correction="tis") for one in ("ppo_clip", "gspo", "cispo")),
    LossSection(surrogate="policy_gradient", correction="icepop"),
]
"""Losses of tokens that were annotated first: with a reference, or of several updates."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@cache
def made() -> tuple[Chain, ...]:
    """Return eight chains of three sessions with an advantage of their own for each token."""
    random = np.random.default_rng(3)
    return tuple(
        credited(replace(chain, session_id="abc"[place % 3]), random.normal(0, 1, chain.trained()))
        for place, chain in enumerate(some_chains(1, 8))
    )


def step(settings: LossSection, layout: Layout, budget: int) -> StepInput:
    with_columns = settings in ANNOTATED
    chains = [replace(one, columns=annotated(one)) if with_columns else one for one in made()]
    units_C = units(settings.unit, chains, [0] * len(chains))
    weights_C = chain_weights(chains, settings)
    batches = pack(chains, budget, layout, units_C=units_C, weights_C=weights_C)
    return StepInput(batches, [], 0, 0.05)


def annotated(chain: Chain) -> dict[Column, NDArray[np.float32]]:
    """Return columns of models which know each token a little less well, or better."""
    distances = np.linspace(0, 0.5, chain.trained(), dtype=np.float32)
    engine_N = chain.tokens.logprobs_T[chain.tokens.trained_T]
    return {Column.REFERENCE: engine_N - distances, Column.PROXIMAL: engine_N + distances}


def gradient(backend: TorchBackend, given: StepInput) -> Gradient:
    *_, found = backend.gradients(given)
    return {name: value.clone() for name, value in found.items()}


def assert_equal(one: Gradient, other: Gradient) -> None:
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("settings", [*combinations(), *ANNOTATED], ids=named)
def test_the_gradient_depends_neither_on_packing_nor_on_ranks(
    settings: LossSection, model: Path
) -> None:
    backend = TorchBackend(model, TrainerSection(device="cpu", threads=1, loss=settings))
    whole = gradient(backend, step(settings, "padded", 1000))
    for layout in get_args(Layout):
        for budget in (20, 1000):
            assert_equal(gradient(backend, step(settings, layout, budget)), whole)
    parts = [gradient(backend, one) for one in shares(step(settings, "packed", 20), 2)]
    assert_equal({name: parts[0][name] + parts[1][name] for name in whole}, whole)


def test_the_gradient_of_the_entropy_is_exact(model: Path) -> None:
    """A bonus alone, against entropies that are written down as sums over the vocabulary."""
    network = open_tiny(model)
    total = sum(chain.trained() for chain in made())
    for chain in made():
        ids = torch.from_numpy(chain.tokens.ids_T.astype(np.int64))
        table = network(input_ids=ids[None], use_cache=False).logits[0].log_softmax(-1)
        places = np.flatnonzero(chain.tokens.trained_T) - 1
        entropies = -(table[places].exp() * table[places]).sum(-1)
        torch.autograd.backward(-0.5 * entropies.sum() / total)
    wanted = {name: one.grad for name, one in network.named_parameters() if one.grad is not None}
    settings = LossSection(surrogate="policy_gradient", entropy=0.5)
    backend = TorchBackend(model, TrainerSection(device="cpu", threads=1, loss=settings))
    without = [credited(chain, 0.0) for chain in made()]
    assert_equal(gradient(backend, StepInput(pack(without, 64, "packed"), [], 0, 0.05)), wanted)


def test_the_reported_loss_is_that_of_the_step_however_it_is_packed(model: Path) -> None:
    layouts: tuple[tuple[Layout, int], ...] = (("padded", 1000), ("packed", 20))
    for settings in combinations():
        found = [
            TorchBackend(model, TrainerSection(device="cpu", threads=1, loss=settings)).train(
                step(settings, layout, budget)
            )
            for layout, budget in layouts
        ]
        for name in ("loss", "clip_fraction", "entropy", "grad_norm"):
            assert found[0][name] == pytest.approx(found[1][name], abs=1e-5), named(settings)
