"""Updates that cannot be applied: nothing changes, and the error says why and what to change."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seamlessflow.infra.errors import ExitStatus
from seamlessflow.infra.weights.tensors import tensor_hashes
from seamlessflow.trainer.backends.backend import StepInput, UpdateFailed
from seamlessflow.trainer.backends.failures import GradientNorms, PassFailures
from seamlessflow.trainer.backends.losses.tokens import Losses
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import Column
from seamlessflow.trainer.data.packing import MicroBatch, pack
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.chains import some_chains, with_advantages, with_returns
from tests.builders.trainer.models import write_tiny

INFINITE = float("inf")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


def opened(model: Path, **more: Any) -> TorchBackend:
    settings = {"device": "cpu", "threads": 1, **more}
    backend = TorchBackend(model, TrainerSection.model_validate(settings))
    backend.load(None, 0)
    return backend


def step(
    advantage: float = 1.0, change: Callable[[MicroBatch], MicroBatch] = lambda batch: batch
) -> StepInput:
    """Return a step whose third chain has this advantage, with its last micro-batch changed."""
    chains = with_advantages(some_chains(), [1.0, -1.0, advantage, 1.0, -1.0, 1.0])
    *batches, last = pack(with_returns(chains), 32, "padded")
    return StepInput([*batches, change(last)], [], 0, 0.05)


def without_a_turn(batch: MicroBatch) -> MicroBatch:
    """Return a micro-batch of which a loss by turns cannot make anything."""
    return replace(batch, turns_N=batch.turns_N[:-1])


def far(batch: MicroBatch) -> MicroBatch:
    target_N = batch.columns[Column.TARGET] * np.float32(INFINITE)
    return replace(batch, columns={**batch.columns, Column.TARGET: target_N})


def test_a_gradient_that_is_not_finite_names_the_loss_the_tokens_and_the_settings(
    model: Path,
) -> None:
    trained = some_chains()[2].trained()
    total = sum(chain.trained() for chain in some_chains())
    with pytest.raises(UpdateFailed) as raised:
        opened(model).train(step(INFINITE))
    said = str(raised.value)
    assert "the gradient of loss ppo_clip is not finite (nan)" in said
    assert f"{trained} of {total} trained tokens have a loss that is not" in said
    assert said.endswith("lower trainer.optimizer.lr or trainer.optimizer.clip_norm")
    assert raised.value.chains == (2,)
    assert raised.value.process_status(ready=True) is ExitStatus.LASTING


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_where_it_computes_in_half_precision_float32_may_help(model: Path, dtype: str) -> None:
    remedy = rf"or compute in float32 instead of {dtype} \(trainer\.dtype\)"
    with pytest.raises(UpdateFailed, match=remedy):
        opened(model, dtype=dtype).train(step(INFINITE))


def test_a_failed_update_leaves_the_weights_as_they_were(model: Path, tmp_path: Path) -> None:
    backend = opened(model)
    with pytest.raises(UpdateFailed):
        backend.train(step(INFINITE))
    backend.write_weights(tmp_path)
    assert tensor_hashes(tmp_path) == tensor_hashes(model)


def test_a_loss_that_raises_an_error_is_named_with_the_error_and_its_place(model: Path) -> None:
    loss = {"surrogate": "gspo", "ratio_level": "turn"}
    place = r"loss gspo failed: \w+Error: .* \(\w+, line \d+\); .*choose another trainer\.loss"
    backend = opened(model, loss=loss)
    with pytest.raises(UpdateFailed, match=place):
        backend.train(step(change=without_a_turn))
    with pytest.raises(UpdateFailed, match=place):
        list(backend.gradients(step(change=without_a_turn)))


@pytest.mark.parametrize("kind", ["model", "head"])
def test_a_critic_whose_gradient_is_not_finite_is_named(model: Path, kind: str) -> None:
    critic = {"kind": kind, "clip": 1e9}
    with pytest.raises(UpdateFailed, match=r"the gradient of the critic .*lower trainer\.critic"):
        opened(model, advantage="gae", critic=critic).train(step(change=far))


LOGPROBS_N = torch.zeros(3, requires_grad=True)


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (
            torch.zeros(()),
            r"it returned losses of shape \[\], not \[3\]",
        ),
        (torch.zeros(3), "it returned losses without a gradient"),
    ],
)
def test_a_loss_that_returns_what_cannot_be_trained_fails(loss: Tensor, reason: str) -> None:
    failures, chains_N = PassFailures(), np.zeros(3, np.int32)
    made = Losses(loss, torch.zeros(3, dtype=torch.bool))
    losses = failures.losses("own", lambda: made, LOGPROBS_N, chains_N)
    assert losses.loss_N.tolist() == [0, 0, 0]
    why = failures.why(GradientNorms(1.0), 3, TrainerSection())
    assert re.match(f"loss own failed: ResultMalformed: {reason}", why)


def test_failures_of_several_ranks_are_those_of_one_pass() -> None:
    failures, other = PassFailures("", 2, [4, 5]), PassFailures("loss own failed", 1, [5, 6])
    sent = PassFailures.from_arrays(other.to_arrays())
    assert failures.with_others([sent]) == PassFailures("loss own failed", 3, [4, 5, 6])


def test_an_update_whose_norms_are_finite_may_be_applied() -> None:
    assert PassFailures().why(GradientNorms(1.0, 2.0), 3, TrainerSection()) == ""
