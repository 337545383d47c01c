"""Every loss that settings accept: values and gradients by logits against a formula in float64.

The formula has numbers where a gradient is stopped, so one that is stopped in the wrong place, or
not stopped, shows although values are right. Its slopes are found in three ways.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from seamlessflow.trainer.backends.losses.corrections import CORRECTIONS, MASKS, masked
from seamlessflow.trainer.backends.losses.loss import token_losses
from seamlessflow.trainer.backends.losses.surrogates import SURROGATES
from seamlessflow.trainer.backends.losses.tokens import binary_divergence
from seamlessflow.trainer.data.aggregations import AGGREGATIONS
from seamlessflow.trainer.loss import (
    AggregationName,
    CorrectionName,
    Divergence,
    LossSection,
    MasksSection,
    SurrogateName,
)
from tests.builders.trainer.losses import (
    BOUNDS,
    MASKED,
    combinations,
    loss_tokens,
    named,
    with_regularisers,
)
from tests.properties.training import loss_formulas
from tests.properties.training.loss_formulas import (
    FormulaToken,
    Frozen,
    by_autograd,
    by_differences,
    objective,
    slopes,
)

TOKENS, VOCABULARY = 32, 5
TURNS = [place % 8 for place in range(TOKENS)]
SESSIONS = [turn // 2 for turn in TURNS]
BY_TOKEN = ("ppo_clip", "cispo", "sapo", "policy_gradient")
"""Surrogates whose ratio is one of tokens, and which see an advantage."""


@dataclass(frozen=True)
class Given:
    """Logits and targets of tokens of four sessions with two turns each, and what is known."""

    logits_NV: Tensor
    targets_N: Tensor
    engine_N: Tensor
    proximal_N: Tensor
    reference_N: Tensor
    advantages_N: Tensor

    @cached_property
    def logprobs_N(self) -> Tensor:
        return scored(self)[0].detach()

    def formula_tokens(self, several: bool) -> list[FormulaToken]:
        columns = (self.engine_N, self.advantages_N, self.reference_N, self.proximal_N)
        return [
            FormulaToken(session, turn, engine, advantage, reference, before if several else None)
            for session, turn, (engine, advantage, reference, before) in zip(
                SESSIONS, TURNS, torch.stack(columns, 1).tolist(), strict=True
            )
        ]


@cache
def example() -> Given:
    random = np.random.default_rng(5)
    logits_NV = torch.from_numpy(random.normal(0, 1, (TOKENS, VOCABULARY))).requires_grad_()
    targets_N = torch.from_numpy(random.integers(0, VOCABULARY, TOKENS))
    own_N = logits_NV.detach().log_softmax(-1).gather(-1, targets_N[:, None])[:, 0]
    near = [own_N + torch.from_numpy(random.normal(0, far, TOKENS)) for far in (0.6, 0.4, 0.5)]
    # A session far above the engine's policy, and one far below, so that their units are bounded.
    engine_N = near[0] + torch.tensor([(-0.4, 0.4, 0, 0)[session] for session in SESSIONS])
    advantages_N = torch.from_numpy(random.normal(0, 1, TOKENS))
    return Given(logits_NV, targets_N, engine_N, near[1], near[2], advantages_N)


def scored(inputs: Given) -> tuple[Tensor, Tensor]:
    """Return log-probs and entropies of the tokens, with gradient."""
    table_NV = inputs.logits_NV.log_softmax(-1)
    entropies_N = -(table_NV.exp() * table_NV).sum(-1)
    return table_NV.gather(-1, inputs.targets_N[:, None])[:, 0], entropies_N


def test_every_name_has_a_formula() -> None:
    for kind, registry, names in (
        ("SURROGATES", SURROGATES, SurrogateName),
        ("CORRECTIONS", CORRECTIONS, CorrectionName),
        ("AGGREGATIONS", AGGREGATIONS, AggregationName),
    ):
        formulas = getattr(loss_formulas, kind)
        assert set(formulas) == set(registry) == set(get_args(names)), kind
    assert set(loss_formulas.MASKS) == set(MASKS) == set(MasksSection.model_fields)
    estimators = LossSection.model_fields["kl_estimator"].annotation
    assert set(loss_formulas.ESTIMATORS) == set(get_args(estimators))


def test_every_setting_of_a_loss_is_varied() -> None:
    default = LossSection()
    varied = {
        name
        for loss in combinations()
        for settings, _ in with_regularisers(loss)
        for name in LossSection.model_fields
        if getattr(settings, name) != getattr(default, name)
    }
    # A name only stands for a surrogate and a correction; `functions` are the user's own.
    assert varied == set(LossSection.model_fields) - {"name", "functions"}


@pytest.mark.parametrize("loss", combinations(), ids=named)
def test_values_and_gradients_are_those_of_the_formula(loss: LossSection) -> None:
    inputs = example()
    for settings, several in with_regularisers(loss):
        logprobs_N, entropies_N = scored(inputs)
        tokens = loss_tokens(
            logprobs_N,
            inputs.engine_N,
            inputs.advantages_N,
            settings,
            TURNS,
            SESSIONS,
            entropies_N,
            inputs.reference_N,
            inputs.proximal_N if several else None,
        )
        losses = token_losses(tokens, settings)
        ones = np.ones(TOKENS, np.int64)
        weights_N = AGGREGATIONS[settings.aggregation](np.array(SESSIONS), ones, settings)
        value = (losses.loss_N * torch.from_numpy(weights_N)).sum()
        (gradient_NV,) = torch.autograd.grad(value, inputs.logits_NV)

        frozen = Frozen(inputs.formula_tokens(several), inputs.logprobs_N.tolist(), settings)
        by = slopes(frozen, entropies_N.tolist())
        (exact_NV,) = torch.autograd.grad(scored(inputs), inputs.logits_NV, by)
        torch.testing.assert_close(gradient_NV, exact_NV, rtol=1e-10, atol=1e-12)
        pairs = zip(inputs.logprobs_N.tolist(), entropies_N.tolist(), strict=True)
        terms = [loss_formulas.token_loss(frozen, n, *pair) for n, pair in enumerate(pairs)]
        wanted = objective(frozen, frozen.frozen, entropies_N.tolist())
        assert value.item() == pytest.approx(wanted, rel=1e-12)
        assert losses.loss_N.tolist() == pytest.approx([term for term, _ in terms], abs=1e-12)
        assert losses.clipped_N.tolist() == [bounded for _, bounded in terms]


@pytest.mark.parametrize(
    "loss", [section for section in combinations() if section.aggregation == "token_mean"]
)
@pytest.mark.parametrize("several", [False, True])
def test_three_ways_to_the_slopes_of_the_formula_agree(loss: LossSection, several: bool) -> None:
    inputs = example()
    settings = loss.model_copy(update={"kl": 0.3, "kl_estimator": "k2" if several else "k3"})
    frozen = Frozen(inputs.formula_tokens(several), inputs.logprobs_N.tolist(), settings)
    entropies = scored(inputs)[1].tolist()
    exact = slopes(frozen, entropies)
    for wanted, other in zip(exact, by_autograd(frozen, entropies), strict=True):
        torch.testing.assert_close(other, wanted, rtol=1e-12, atol=1e-14)
    for wanted, other in zip(exact, by_differences(frozen, entropies), strict=True):
        torch.testing.assert_close(other, wanted, rtol=1e-6, atol=1e-9)


def reached(ratios: Sequence[float], low: float, high: float) -> set[tuple[str, bool]]:
    """Return the sides of bounds that ratios are on, each with whether an advantage is positive."""
    sides = ["below" if ratio < low else "above" if ratio > high else "within" for ratio in ratios]
    return set(zip(sides, signs(), strict=True))


def test_the_tokens_are_on_both_sides_of_every_bound_with_both_signs() -> None:
    inputs, everything = example(), set(product(("below", "within", "above"), (False, True)))
    to_engine_N = inputs.logprobs_N - inputs.engine_N
    before_to_engine_N = inputs.proximal_N - inputs.engine_N
    settings = combinations()[0]
    low, high = 1 - settings.clip_low, 1 + settings.clip_high
    for log_ratios_N in (to_engine_N, inputs.logprobs_N - inputs.proximal_N):
        ratios = log_ratios_N.exp().tolist()
        assert reached(ratios, low, high) == everything
        assert ("above", False) in reached(ratios, 0, 2.0), "dual_clip"
    for log_ratios_N in (to_engine_N, before_to_engine_N):
        assert reached(log_ratios_N.exp().tolist(), 1 / settings.cap, settings.cap) == everything
    for units in (TURNS, SESSIONS):
        of_units = [to_engine_N[torch.tensor(units) == unit] for unit in units]
        means = [log_ratios.mean().exp().item() for log_ratios in of_units]
        assert reached(means, low, high) == everything
        products = [log_ratios.sum().exp().item() for log_ratios in of_units]
        assert {("within", False), ("above", False)} <= reached(products, 0, settings.cap)
    bounds: dict[Divergence, float] = {"tv": 0.015, "kl": 0.004}
    for kind, bound in bounds.items():
        beyond = (binary_divergence(inputs.engine_N, inputs.logprobs_N, kind) > bound).tolist()
        risen = (to_engine_N > 0).tolist()
        sides = set(zip(risen, beyond, signs(), strict=True))
        assert sides == set(product((False, True), repeat=3)), kind


def signs() -> list[bool]:
    return [value > 0 for value in example().advantages_N.tolist()]


@pytest.mark.parametrize("masks", MASKED[1:], ids=str)
def test_each_mask_takes_some_tokens_and_leaves_some(masks: dict[str, object]) -> None:
    inputs, settings = example(), LossSection.model_validate({"masks": masks})
    tokens = loss_tokens(
        inputs.logprobs_N, inputs.engine_N, inputs.advantages_N, settings, TURNS, SESSIONS
    )
    gone_N = masked(tokens, settings.masks)
    assert 0 < int(gone_N.sum()) < TOKENS


def gradient(**loss: object) -> Tensor:
    """Return the gradient of a loss by logits at one update a batch."""
    inputs, settings = example(), LossSection.model_validate({**BOUNDS, **loss})
    logprobs_N, _ = scored(inputs)
    tokens = loss_tokens(
        logprobs_N, inputs.engine_N, inputs.advantages_N, settings, TURNS, SESSIONS
    )
    (gradient_NV,) = torch.autograd.grad(
        token_losses(tokens, settings).loss_N.mean(), inputs.logits_NV
    )
    return gradient_NV


def classes(gradients: dict[str, Tensor]) -> set[frozenset[str]]:
    """Return the names whose gradients are equal, together."""
    return {
        frozenset(other for other, near in gradients.items() if torch.allclose(tensor, near, 1e-9))
        for tensor in gradients.values()
    }


def test_at_one_update_these_combinations_and_no_others_have_one_gradient() -> None:
    """A section of docs/algorithms/losses.md says which."""
    gradients = {
        named(section): gradient(
            **section.model_dump(exclude_unset=True, exclude={*BOUNDS, "entropy"})
        )
        for section in combinations()
        # Advantages of pairs are of pairs alone.
        if section.aggregation == "token_mean" and not section.of_pairs
    }
    with_correction = [
        ("tis", "token", "", "cispo-none-token_mean-token"),
        ("tis", "turn", "", ""),
        ("tis", "session", "", ""),
        ("icepop", "token", "-0.8", ""),
    ]
    variants = {
        **{name: ("",) for name in BY_TOKEN},
        "ppo_clip": ("", "-2.0"),
        "dppo": ("-tv", "-kl"),
    }
    wanted = {
        frozenset(
            {
                *(
                    f"{name}-{correction}-token_mean-{level}{variant}{floor}"
                    for name, endings in variants.items()
                    for variant in endings
                ),
                *(
                    f"gspo-{correction}-token_mean-{ratio_level}-{level}{floor}"
                    for ratio_level in ("turn", "session")
                ),
                *([other] if other else []),
            }
        )
        for correction, level, floor, other in with_correction
    }
    joined = {name for names in wanted for name in names}
    wanted |= {frozenset({name}) for name in gradients if name not in joined}
    assert classes(gradients) == wanted


@pytest.mark.parametrize("settings", combinations(), ids=named)
def test_no_ratio_is_too_large_to_be_finite(settings: LossSection) -> None:
    logprobs_N = torch.tensor([-1.0, -201.0, -1.0], requires_grad=True)
    engine_N, advantages_N = torch.tensor([-201.0, -1.0, -1.0]), torch.tensor([-1.0, 1.0, 0.0])
    tokens = loss_tokens(logprobs_N, engine_N, advantages_N, settings, [0, 1, 1], [0, 1, 1])
    loss_N = token_losses(tokens, settings).loss_N
    torch.autograd.backward(loss_N.sum())
    assert logprobs_N.grad is not None
    assert loss_N.isfinite().all() and logprobs_N.grad.isfinite().all()


@pytest.mark.parametrize("settings", combinations(), ids=named)
def test_a_rank_without_a_token_has_a_loss_of_nothing(settings: LossSection) -> None:
    none = torch.zeros(0, requires_grad=True)
    losses = token_losses(loss_tokens(none, none.detach(), none.detach(), settings), settings)
    assert losses.loss_N.shape == losses.clipped_N.shape == (0,)
