"""Every loss through a model: value and gradient are those of the formula in each layout.

Once in float64, where nothing but rounding is left, and by the back end in float32. Sessions fork,
those of a group have one prompt, and half of them have another temperature.
"""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.backends.forward import model_inputs
from seamlessflow.trainer.backends.losses.loss import old_policy, token_losses
from seamlessflow.trainer.backends.losses.tokens import LossTokens
from seamlessflow.trainer.backends.step_message import shares
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.aggregations import chain_weights
from seamlessflow.trainer.data.chains import Chain, Column, Tokens, credited
from seamlessflow.trainer.data.packing import Layout, MicroBatch, pack
from seamlessflow.trainer.data.units import units
from seamlessflow.trainer.loss import LossSection
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.chains import forked_chains
from tests.builders.trainer.losses import combinations, named, with_regularisers
from tests.builders.trainer.models import exact_model, open_tiny
from tests.properties.training.exact_step import ExactStep, Gradient, distance

SMALL = 40
"""Most tokens of a micro-batch; a loss of sessions has some larger ones."""
ROUNDING = 2e-6
"""Of a gradient in float32, where masks leave a few tokens whose parts nearly cancel."""
Scored = tuple[MicroBatch, Tensor, Tensor]
"""A micro-batch with the log-probs and entropies of its tokens, in float64 with gradient."""


class Made:
    """A model, a step of chains, and what the formula makes of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.network: PreTrainedModel = open_tiny(directory).double()
        random = np.random.default_rng(3)
        self.chains = [
            self._told(replace(chain, tokens=_warmer(chain, place)), random)
            for place, chain in enumerate(forked_chains(sessions=2))
        ]
        self.exact = ExactStep(self.network, self.chains)
        self._scored: dict[tuple[str, Layout, int], list[Scored]] = {}

    def _told(self, chain: Chain, random: np.random.Generator) -> Chain:
        """Return a chain whose tokens the engine, the reference and the policy before the step find
        more or less likely than the policy does."""
        policy_N = ExactStep(self.network, [chain]).logprobs_N.detach().numpy()
        engine_N, reference_N, before_N = (
            (policy_N + random.normal(0, far, len(policy_N))).astype(np.float32)
            for far in (0.5, 0.4, 0.5)
        )
        chain.tokens.logprobs_T[chain.tokens.trained_T] = engine_N
        columns = {Column.REFERENCE: reference_N, Column.PROXIMAL: before_N}
        return credited(replace(chain, columns=columns), random.normal(0, 1, len(policy_N)))

    def packed(
        self, settings: LossSection, layout: Layout, budget: int, several: bool = True
    ) -> list[MicroBatch]:
        """Return micro-batches; log-probs before the step are annotated for several updates."""
        chains = self.chains if several else [_of_one_update(chain) for chain in self.chains]
        groups = [int(chain.session_id.split(".")[0][-1]) for chain in chains]
        units_C = units(settings.unit, chains, groups)
        weights_C = chain_weights(chains, settings)
        return pack(chains, budget, layout, units_C=units_C, weights_C=weights_C)

    def scored(self, settings: LossSection, layout: Layout, budget: int) -> list[Scored]:
        """Return micro-batches with what the model says of their tokens, computed once."""
        name = settings.unit, layout, budget
        if name not in self._scored:
            batches = self.packed(settings, layout, budget)
            self._scored[name] = [(batch, *_said(self.network, batch)) for batch in batches]
        return self._scored[name]


def _warmer(chain: Chain, place: int) -> Tokens:
    warm_T = np.full(len(chain), (1.0, 0.8)[place % 2], np.float32)
    return replace(chain.tokens, temperatures_T=warm_T)


def _of_one_update(chain: Chain) -> Chain:
    return replace(chain, columns={Column.REFERENCE: chain.columns[Column.REFERENCE]})


def _said(network: PreTrainedModel, batch: MicroBatch) -> tuple[Tensor, Tensor]:
    logits_BTV = network(**model_inputs(network, batch)).logits
    logits_NV = logits_BTV[batch.rows_N, batch.columns_N]
    temperatures_N = torch.from_numpy(batch.temperatures_N).double()
    table_NV = (logits_NV / temperatures_N[:, None]).log_softmax(-1)
    targets_N = torch.from_numpy(batch.targets_N)
    return table_NV.gather(-1, targets_N[:, None])[:, 0], -(table_NV.exp() * table_NV).sum(-1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return a step for a model of which no part computes in less than its own type."""
    directory = tmp_path_factory.mktemp("exact")
    exact_model().to(torch.float32).save_pretrained(directory)  # type: ignore[arg-type]
    return Made(directory)


def in_float64(made: Made, settings: LossSection, several: bool, batches: list[Scored]) -> Tensor:
    """Return the loss of the step by the trainer's losses, in float64."""
    weights_C, total = torch.from_numpy(chain_weights(made.chains, settings)), torch.zeros(())
    for batch, logprobs_N, entropies_N in batches:
        engine_N = torch.from_numpy(batch.logprobs_N).double()
        columns = {
            name: torch.from_numpy(column).double() for name, column in batch.columns.items()
        }
        before_N = columns[Column.PROXIMAL] if several else None
        tokens = LossTokens(
            logprobs_N=logprobs_N,
            engine_N=engine_N,
            old_N=old_policy(logprobs_N, engine_N, settings, before_N),
            advantages_N=torch.from_numpy(batch.advantages_N).double(),
            entropies_N=entropies_N,
            reference_N=columns[Column.REFERENCE],
            turns_N=batch.turns_N,
            sessions_N=batch.sessions_N,
        )
        weights_N = weights_C[torch.from_numpy(batch.chains_N).long()]
        total = total + (token_losses(tokens, settings).loss_N * weights_N).sum()
    return total


def cases() -> list[tuple[LossSection, bool]]:
    """Return every loss with regularisers in turn, corrected ones for several updates in turn."""
    losses = [with_regularisers(section) for section in combinations()]
    return [
        variants[(place // 3 + 2 * place) % len(variants)] for place, variants in enumerate(losses)
    ]


def called(case: object) -> str:
    return named(case) if isinstance(case, LossSection) else f"several-{case}"


@pytest.mark.parametrize(("settings", "several"), cases(), ids=called)
def test_in_float64_every_layout_has_the_loss_and_gradient_of_the_formula(
    made: Made, settings: LossSection, several: bool
) -> None:
    wanted, gradient = made.exact.loss(settings, several)
    names, parameters = zip(*made.network.named_parameters(), strict=True)
    for layout in get_args(Layout):
        for budget in (SMALL, 1000):
            loss = in_float64(made, settings, several, made.scored(settings, layout, budget))
            gradients = torch.autograd.grad(loss, parameters, retain_graph=True)
            assert loss.item() == pytest.approx(wanted, rel=1e-10)
            assert distance(dict(zip(names, gradients, strict=True)), gradient) < 1e-10


@pytest.mark.parametrize(("settings", "several"), cases(), ids=called)
def test_the_back_end_has_them_in_every_layout_and_on_every_number_of_ranks(
    made: Made, settings: LossSection, several: bool
) -> None:
    wanted, gradient = made.exact.loss(settings, several)
    section = TrainerSection(device="cpu", threads=1, loss=settings)
    backend = TorchBackend(made.directory, section)
    for layout in get_args(Layout):
        whole = StepInput(made.packed(settings, layout, SMALL, several), [], 0, 0.0)
        assert len(whole.micro_batches) > 1
        assert distance(in_float32(backend, whole), gradient) < ROUNDING
    parts = [in_float32(backend, share) for share in shares(whole, 2)]
    summed = {name: parts[0][name] + parts[1][name] for name in gradient}
    assert distance(summed, gradient) < ROUNDING
    # At a rate of 0 the weights stay as they are.
    assert backend.train(whole)["loss"] == pytest.approx(wanted, rel=1e-6, abs=1e-6)


def in_float32(backend: TorchBackend, step: StepInput) -> Gradient:
    *_, gradient = backend.gradients(step)
    return {name: value.clone() for name, value in gradient.items()}
