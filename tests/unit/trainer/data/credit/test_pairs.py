"""Losses of pairs: values and derivatives of three pairs against formulas, and their metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seamlessflow.trainer.credit import PairsSection
from seamlessflow.trainer.data.batch import Batch, Prepared
from seamlessflow.trainer.data.chains import OPPONENTS, Chain, Column
from seamlessflow.trainer.data.credit.pairs import PAIR_LOSSES, pair_facts, with_pair_losses
from seamlessflow.trainer.data.pairs import SessionPair
from tests.builders.trainer.chains import forked_chains
from tests.builders.trainer.groups import group

MODELS = (Column.PROXIMAL, Column.REFERENCE, *OPPONENTS)
PAIRS = (("g-0.0.0", "g-0.1.0"), ("g-0.0.0", "g-0.2.0"), ("g-1.2.0", "g-1.0.0"))
"""Three pairs, of which two share a session; one session is in none."""
SETTINGS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "squared, without history": ("pairs_squared", {"reference_share": 1.0}),
    "squared": ("pairs_squared", {"eta": 0.1}),
    "squared, three opponents": (
        "pairs_squared",
        {"reference_share": 0.25, "opponents": {"most": 3, "weights": [3, 0, 1]}},
    ),
    "logistic": ("pairs_logistic", {}),
    "logistic, steep": ("pairs_logistic", {"beta": 2.0}),
}


def with_columns(chains: Sequence[Chain], seed: int) -> list[Chain]:
    """Return the chains with made-up log-probs under each model."""
    random = np.random.default_rng(seed)
    return [
        replace(
            chain,
            columns={
                name: random.normal(-2, 1, chain.trained()).astype(np.float32) for name in MODELS
            },
        )
        for chain in chains
    ]


def batch(seed: int = 0, pairs: Sequence[tuple[str, str]] = PAIRS) -> Batch:
    """Return two groups of three sessions that fork."""
    made = with_columns(forked_chains(seed), seed)
    return Batch(
        0,
        tuple(
            Prepared(
                group(name, 0.0, 0.5, 1.0),
                tuple(chain for chain in made if chain.session_id.startswith(name)),
                pairs=tuple(SessionPair(*pair) for pair in pairs if pair[0].startswith(name)),
            )
            for name in ("g-0", "g-1")
        ),
    )


def tokens_of(chains: Sequence[Chain]) -> dict[Column, Tensor]:
    """Return the columns of all chains in float64, one after the other."""
    return {
        name: torch.from_numpy(np.concatenate([chain.columns[name] for chain in chains])).double()
        for name in MODELS
    }


def sessions_of(chains: Sequence[Chain]) -> list[str]:
    return [chain.session_id for chain in chains for _ in range(chain.trained())]


def formula(
    logprobs: Mapping[Column, Tensor],
    sessions: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    name: str,
    settings: PairsSection,
) -> Tensor:
    """Return the mean loss of the pairs, as the papers have it."""

    def distance(model: Column, pair: tuple[str, str]) -> Tensor:
        better, worse = (
            logprobs[model][[place for place, other in enumerate(sessions) if other == session]]
            for session in pair
        )
        if name == "pairs_logistic":
            return better.sum() - worse.sum()
        return better.mean() - worse.mean()

    def loss(pair: tuple[str, str]) -> Tensor:
        policy, reference = (distance(model, pair) for model in MODELS[:2])
        if name == "pairs_logistic":
            return -torch.nn.functional.logsigmoid(settings.beta * (policy - reference))
        share, most = settings.reference_share, settings.opponents.most
        weights = settings.opponents.weights or (1,) * most
        past = sum(
            weight / sum(weights) * distance(model, pair)
            for weight, model in zip(weights, OPPONENTS, strict=False)
        )
        margin = policy - share * reference - (1 - share) * past
        return (margin - 1 / (2 * settings.eta)) ** 2

    return torch.stack([loss(pair) for pair in pairs]).mean()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", SETTINGS)
def test_value_and_derivative_of_three_pairs_are_those_of_the_formula(case: str, seed: int) -> None:
    name, values = SETTINGS[case]
    settings = PairsSection.model_validate(values)
    made = batch(seed)
    chains = made.chains()
    logprobs = tokens_of(chains)
    logprobs[Column.PROXIMAL].requires_grad_()
    wanted = formula(logprobs, sessions_of(chains), PAIRS, name, settings)
    (slopes,) = torch.autograd.grad(wanted, logprobs[Column.PROXIMAL])

    compared = with_pair_losses(made, name, settings)
    tokens = compared.trained()
    losses = np.concatenate([chain.columns[Column.PAIR_LOSS] for chain in compared.chains()])
    assert float(losses.sum(dtype="f8")) / tokens == pytest.approx(wanted.item(), rel=1e-6)
    advantages = np.concatenate(
        [chain.tokens.advantages_T[chain.tokens.trained_T] for chain in compared.chains()]
    )
    assert -advantages.astype("f8") / tokens == pytest.approx(slopes.numpy(), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("weights", [[1, 1], [7, 7]])
def test_opponents_count_alike_unless_weights_say_otherwise(weights: list[float]) -> None:
    alike = losses_of(batch(), opponents={"weights": weights})
    assert alike == losses_of(batch())
    assert losses_of(batch(), opponents={"weights": [3, 1]}) != alike


def losses_of(made: Batch, **settings: Any) -> list[float]:
    section = PairsSection.model_validate(settings)
    compared = with_pair_losses(made, "pairs_squared", section)
    return [float(chain.columns[Column.PAIR_LOSS][0]) for chain in compared.chains()]


def test_without_opponents_no_column_of_theirs_is_read() -> None:
    made = batch()
    alone = replace_chains(made, {Column.PROXIMAL, Column.REFERENCE})
    assert losses_of(alone, reference_share=1.0) == losses_of(made, reference_share=1.0)
    with pytest.raises(KeyError):
        losses_of(alone)


def replace_chains(made: Batch, names: set[Column]) -> Batch:
    """Return the batch with these columns alone."""
    return replace(
        made,
        groups=tuple(
            replace(
                prepared,
                chains=tuple(
                    replace(chain, columns={name: chain.columns[name] for name in names})
                    for chain in prepared.chains
                ),
            )
            for prepared in made.groups
        ),
    )


def test_chains_that_only_count_change_no_gradient() -> None:
    made = batch()
    first, second = made.groups
    counting = replace(made, groups=(first, replace(second, chains=(), counted=second.chains)))
    alone = replace(made, groups=(first,))
    whole, part = (
        with_pair_losses(each, "pairs_squared", PairsSection()) for each in (counting, alone)
    )
    ratio = (part.trained() + sum(chain.trained() for chain in second.chains)) / part.trained()
    for counted, single in zip(whole.chains(), part.chains(), strict=True):
        expected = single.tokens.advantages_T * ratio
        assert counted.tokens.advantages_T == pytest.approx(expected, rel=1e-6)


def test_a_pair_of_which_a_session_has_lost_all_tokens_leaves() -> None:
    made = batch()
    first = made.groups[0]
    left = tuple(chain for chain in first.chains if chain.session_id != "g-0.1.0")
    compared = with_pair_losses(
        replace(made, groups=(replace(first, chains=left), made.groups[1])),
        "pairs_logistic",
        PairsSection(),
    )
    assert [pair.names for group in compared.groups for pair in group.pairs] == list(PAIRS[1:])
    without = with_pair_losses(batch(pairs=PAIRS[1:]), "pairs_logistic", PairsSection())
    assert pair_facts(compared) == pair_facts(without)


def test_the_metrics_of_pairs_are_their_number_their_accuracy_and_their_mean_margin() -> None:
    made = batch(seed=1)
    compared = with_pair_losses(made, "pairs_logistic", PairsSection())
    logprobs, sessions = tokens_of(made.chains()), sessions_of(made.chains())

    def logprob(model: Column, session: str) -> float:
        places = [place for place, other in enumerate(sessions) if other == session]
        return float(logprobs[model][places].sum())

    margins = [
        logprob(Column.PROXIMAL, better)
        - logprob(Column.PROXIMAL, worse)
        - logprob(Column.REFERENCE, better)
        + logprob(Column.REFERENCE, worse)
        for better, worse in PAIRS
    ]
    assert {margin > 0 for margin in margins} == {True, False}
    assert pair_facts(compared) == pytest.approx(
        {
            "pairs": 3.0,
            "pair_accuracy": np.mean([margin > 0 for margin in margins]),
            "pair_margin": np.mean(margins),
        }
    )


def test_a_margin_of_rounding_alone_is_no_preference() -> None:
    made = batch()
    alike = replace(
        made,
        groups=tuple(
            replace(prepared, chains=tuple(map(with_equal_models, prepared.chains)))
            for prepared in made.groups
        ),
    )
    settings = PairsSection.model_validate({"opponents": {"most": 3, "weights": [3, 2, 1]}})
    facts = pair_facts(with_pair_losses(alike, "pairs_squared", settings))
    assert facts == pytest.approx({"pairs": 3, "pair_accuracy": 0, "pair_margin": 0}, abs=1e-12)


def with_equal_models(chain: Chain) -> Chain:
    return replace(chain, columns=dict.fromkeys(MODELS, chain.columns[Column.PROXIMAL]))


@pytest.mark.parametrize("name", PAIR_LOSSES)
def test_a_batch_without_a_pair_or_without_a_chain_has_no_gradient(name: str) -> None:
    unpaired = with_pair_losses(batch(pairs=()), name, PairsSection())
    assert not any(chain.tokens.advantages_T.any() for chain in unpaired.chains())
    assert pair_facts(unpaired) == {}
    assert with_pair_losses(Batch(0, ()), name, PairsSection()) == Batch(0, ())


def test_a_margin_far_off_is_finite() -> None:
    made = batch()
    far = replace(
        made,
        groups=tuple(
            replace(prepared, chains=tuple(map(shifted, prepared.chains)))
            for prepared in made.groups
        ),
    )
    compared = with_pair_losses(far, "pairs_logistic", PairsSection())
    for chain in compared.chains():
        assert np.isfinite(chain.columns[Column.PAIR_LOSS]).all()
        assert np.isfinite(chain.tokens.advantages_T).all()


def shifted(chain: Chain) -> Chain:
    """Return the chain of a policy that finds one session of a group nearly impossible."""
    far = -1e4 if chain.session_id.endswith(".0.0") else 0.0
    columns = {**chain.columns, Column.PROXIMAL: chain.columns[Column.PROXIMAL] + np.float32(far)}
    return replace(chain, columns=columns)
