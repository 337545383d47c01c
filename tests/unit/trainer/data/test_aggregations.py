"""Aggregations: how much a trained token weighs in the loss of a step."""

from dataclasses import replace

import numpy as np
import pytest

from seamlessflow.infra.user_functions import ResultMalformed
from seamlessflow.trainer.data.aggregations import (
    AGGREGATIONS,
    chain_weights,
    checked_weights,
)
from seamlessflow.trainer.data.chains import Chain
from seamlessflow.trainer.loss import AggregationName, LossSection
from tests.builders.trainer.chains import some_chains

SESSIONS = "aabacc"


def made() -> list[Chain]:
    pairs = zip(SESSIONS, some_chains(), strict=True)
    return [replace(chain, session_id=session) for session, chain in pairs]


def formula(name: AggregationName, losses: dict[str, list[float]]) -> float:
    """The loss of a step from the losses of the tokens of each session."""
    match name:
        case "token_mean":
            return float(
                np.mean([loss for session_losses in losses.values() for loss in session_losses])
            )
        case "sequence_mean":
            return float(np.mean([np.mean(session_losses) for session_losses in losses.values()]))
        case "constant":
            return float(np.mean([sum(session_losses) / 9 for session_losses in losses.values()]))


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_the_sum_by_weights_is_the_aggregated_loss(name: AggregationName) -> None:
    settings = LossSection(aggregation=name, constant_length=9 if name == "constant" else None)
    random, chains = np.random.default_rng(0), made()
    tokens = [random.normal(0, 1, chain.trained()) for chain in chains]
    losses: dict[str, list[float]] = {}
    for session, chain_losses in zip(SESSIONS, tokens, strict=True):
        losses.setdefault(session, []).extend(chain_losses.tolist())
    weights_C = chain_weights(chains, settings)
    total = sum(weight * losses_N.sum() for weight, losses_N in zip(weights_C, tokens, strict=True))
    assert total == pytest.approx(formula(name, losses))


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_per_request_each_chain_is_a_sequence(name: AggregationName) -> None:
    settings = LossSection(aggregation=name, constant_length=9 if name == "constant" else None)
    requests = [replace(chain, session_id=f"{place}") for place, chain in enumerate(made())]
    weights_C = chain_weights(made()[:4], settings, made()[4:], "per_request")
    assert weights_C.tolist() == chain_weights(requests[:4], settings, requests[4:]).tolist()


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_a_step_without_a_token_has_no_weights(name: AggregationName) -> None:
    length = 9 if name == "constant" else None
    assert chain_weights([], LossSection(aggregation=name, constant_length=length)).tolist() == []


@pytest.mark.parametrize(
    ("weights", "message"),
    [([0.5], r"weights of shape \[1\], not of 2 chains"), ([0.5, np.nan], "is not finite")],
)
def test_weights_that_no_step_can_be_trained_with_are_refused(
    weights: list[float], message: str
) -> None:
    with pytest.raises(ResultMalformed, match=message):
        checked_weights(np.array(weights), 2)
