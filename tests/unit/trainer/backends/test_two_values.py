"""A critic with two values: values, losses and gradients are those of a formula in float64."""

from collections.abc import Sequence
from dataclasses import replace
from math import log1p
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from seamlessflow.schemas.arrays import Float32s
from seamlessflow.trainer.backends.backend import ModelUnusable, StepInput
from seamlessflow.trainer.backends.losses.values import value_loss
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import Chain, Column
from seamlessflow.trainer.data.credit.phase import by_chain
from seamlessflow.trainer.data.credit.values import OUTPUTS, Lesson, value_columns
from seamlessflow.trainer.data.packing import Layout, MicroBatch, empty, pack
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.chains import forked_chains, some_chains, with_two_values
from tests.builders.trainer.models import open_tiny, write_tiny

BOTH = OUTPUTS["habc"]
LESSONS = [lesson for output in BOTH for lesson in output.lessons]
KINDS: dict[str, dict[str, Any]] = {
    "model": {"kind": "model", "lr": 0.01},
    "head": {"kind": "head", "lr": 0.01, "coefficient": 0.5},
}
GRADIENT = 1 - 0.9
"""The first mean of AdamW is the gradient times this."""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("policy"))


def opened(policy: Path, kind: str, **more: object) -> TorchBackend:
    settings = {
        "device": "cpu",
        "threads": 1,
        "advantage": "habc",
        "critic": KINDS[kind],
        "loss": {"surrogate": "policy_gradient"},
        "optimizer": {"clip_norm": 1e9},
        **more,
    }
    backend = TorchBackend(policy, TrainerSection.model_validate(settings))
    backend.load(None, 0)
    backend.acquire()
    return backend


def step(chains: Sequence[Chain], layout: Layout = "padded") -> StepInput:
    return StepInput(pack(chains, 64, layout), [], 0, 0.05)


def values(
    backend: TorchBackend, chains: Sequence[Chain], layout: Layout = "padded"
) -> dict[Column, list[float]]:
    packed = pack(chains, 64, layout)
    columns = by_chain(chains, packed, backend.annotate(packed, value_columns(BOTH)))
    return {
        name: [value for of_chain in columns for value in of_chain[name].tolist()]
        for name in value_columns(BOTH)
    }


def saved(backend: TorchBackend, directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    backend.snapshot()
    backend.save(directory)
    return directory


def with_some_outputs(backend: TorchBackend, directory: Path) -> tuple[Tensor, Tensor]:
    """Give the outputs weights that are not 0; return them."""
    torch.manual_seed(3)
    file = saved(backend, directory) / "critic-weights.safetensors"
    weights = load_file(file)
    names = [name for name in weights if name.split(".")[-2:][0] in ("score", "weight", "bias")]
    for name in names:
        weights[name] = torch.randn_like(weights[name]) / 2
    save_file(weights, file)
    backend.load(directory, 0)
    weight, bias = sorted(names, reverse=True)
    return weights[weight], weights[bias]


def by_formula(
    policy: Path, weight_OH: Tensor, bias_O: Tensor, chains: Sequence[Chain]
) -> tuple[dict[Column, list[float]], dict[str, Tensor]]:
    """Return the values and the gradients of the outputs, one chain at a time."""
    model = open_tiny(policy).double()
    weight_OH = weight_OH.double().requires_grad_()
    bias_O = bias_O.double().requires_grad_()
    computed: dict[Column, list[float]] = {name: [] for name in value_columns(BOTH)}
    total = torch.zeros((), dtype=torch.float64)
    for chain in chains:
        ids = torch.from_numpy(chain.tokens.ids_T.astype(np.int64))
        output = model(input_ids=ids[None], use_cache=False, output_hidden_states=True)
        values_TO = output.hidden_states[-1][0] @ weight_OH.T + bias_O
        for number, place in enumerate(np.flatnonzero(chain.tokens.trained_T)):
            for kind, of_critic in enumerate(BOTH):
                for lesson, at in zip(of_critic.lessons, (place - 1, place), strict=True):
                    value = values_TO[at, kind]
                    computed[lesson.value].append(value.item())
                    target, weight = (
                        float(chain.columns[name][number])
                        for name in (lesson.target, lesson.weight)
                    )
                    total = total + weight * loss_by_hand(of_critic.loss, value, target)
    gradients = torch.autograd.grad(total, [weight_OH, bias_O])
    return computed, {"loss": total.detach(), "weight": gradients[0], "bias": gradients[1]}


def loss_by_hand(kind: str, value: Tensor, target: float) -> Tensor:
    """Return -log of the outcome's chance, or half a square that goes on as a line from 1 on."""
    if kind == "cross_entropy":
        chance = 1 / (1 + (-value).exp())
        return -chance.log() if target else -(1 - chance).log()
    apart = (value - target).abs()
    return apart.square() / 2 if apart.item() <= 1 else apart - 0.5


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("forks", [False, True], ids=["chains", "forks"])
def test_values_losses_and_gradients_are_those_of_the_formula(
    policy: Path, tmp_path: Path, layout: Layout, kind: str, forks: bool
) -> None:
    chains = with_two_values(forked_chains(3) if forks else some_chains(0))
    backend = opened(policy, kind)
    weight_OH, bias_O = with_some_outputs(backend, tmp_path / "begun")
    wanted, of_outputs = by_formula(policy, weight_OH, bias_O, chains)
    computed = values(backend, chains, layout)
    for name, numbers in wanted.items():
        assert computed[name] == pytest.approx(numbers, abs=1e-5), name
    metrics = backend.train(step(chains, layout))
    assert metrics["value_loss"] == pytest.approx(float(of_outputs["loss"]), rel=1e-6)
    means = load_file(saved(backend, tmp_path / "trained") / "critic-optimizer.safetensors")
    for part in ("weight", "bias"):
        (key,) = (k for k in means if k in (f"exp_avg/{part}", f"exp_avg/score.{part}"))
        torch.testing.assert_close(
            means[key].double() / GRADIENT, of_outputs[part], atol=1e-6, rtol=1e-4
        )


def test_each_loss_has_the_value_and_the_derivative_of_its_formula() -> None:
    """Two sessions of two turns, the first a success; values that lie on both sides of a bound."""
    logits, left = [0.4, -1.1, 2.0, 0.0], [-2.0, -0.2, 0.3, -1.0]
    outcomes, turns = [1.0, 1.0, 0.0, 0.0], [-1.2, -1.0, 2.0, 0.0]
    weights = [0.25, 0.25, 0.25, 0.25], [0.5, 0.25, 0.25, 0.0]
    first, second = (output.before for output in BOTH)
    columns = {
        first.target: outcomes,
        first.weight: weights[0],
        second.target: turns,
        second.weight: weights[1],
    }
    batch = micro_batch({name: np.array(column, "f4") for name, column in columns.items()})
    zeros = {lesson.value: torch.zeros(4) for lesson in LESSONS}
    said = {first.value: torch.tensor(logits), second.value: torch.tensor(left)}
    for tensor in said.values():
        tensor.requires_grad_()
    loss = value_loss({**zeros, **said}, batch, BOTH, 0.2)
    torch.autograd.backward(loss)
    chances = [1 / (1 + np.exp(-logit)) for logit in logits]
    entropies = [log1p(np.exp(-z if y else z)) for z, y in zip(logits, outcomes, strict=True)]
    errors = np.subtract(left, turns)
    bounded = [e * e / 2 if abs(e) <= 1 else abs(e) - 0.5 for e in errors]
    total = np.dot(entropies, weights[0]) + np.dot(bounded, weights[1])
    assert loss.item() == pytest.approx(total, abs=1e-6)
    slopes = said[first.value].grad, said[second.value].grad
    assert slopes[0] is not None and slopes[1] is not None
    assert slopes[0].tolist() == pytest.approx(
        np.multiply(np.subtract(chances, outcomes), weights[0]).tolist(), abs=1e-6
    )
    assert slopes[1].tolist() == pytest.approx(
        np.multiply(errors.clip(-1, 1), weights[1]).tolist(), abs=1e-6
    )


def micro_batch(columns: dict[Column, Float32s]) -> MicroBatch:
    """Return a micro-batch of four trained tokens with these columns."""
    return replace(empty(), targets_N=np.zeros(4, np.int64), columns=columns)


def test_places_without_weight_teach_nothing(policy: Path, tmp_path: Path) -> None:
    chains = [
        replace(
            chain,
            columns={
                name: column_N * np.float32(name not in {lesson.weight for lesson in LESSONS})
                for name, column_N in chain.columns.items()
            },
        )
        for chain in with_two_values(some_chains(0))
    ]
    for kind in KINDS:
        backend = opened(policy, kind)
        metrics = backend.train(step(chains))
        assert metrics.get("value_loss", 0.0) == 0
        assert not any(value for column in values(backend, chains).values() for value in column)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_two_values_go_on_from_a_checkpoint_to_the_digit(
    policy: Path, tmp_path: Path, kind: str, dtype: str
) -> None:
    first = opened(policy, kind, dtype=dtype)
    first.train(step(with_two_values(some_chains(0))))
    saved(first, tmp_path)
    # The role changes hands between steps.
    first.release()
    first.acquire()
    wanted = first.train(step(with_two_values(some_chains(1), 1)))
    second = opened(policy, kind, dtype=dtype)
    second.load(tmp_path, 1)
    assert second.train(step(with_two_values(some_chains(1), 1))) == wanted
    assert values(second, some_chains(2)) == values(first, some_chains(2))
    weights = load_file(tmp_path / "critic-weights.safetensors")
    assert [len(weights[name]) for name in weights if name.endswith("bias")][-1:] == [2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("advantages", [("gae", "habc"), ("habc", "gae")], ids="-".join)
def test_a_checkpoint_of_a_critic_with_other_values_is_refused(
    policy: Path, tmp_path: Path, kind: str, advantages: tuple[str, str]
) -> None:
    before, after = advantages
    saved(opened(policy, kind, advantage=before), tmp_path)
    with pytest.raises(ModelUnusable, match=r"its critic cannot be read: .*weight has the shape"):
        opened(policy, kind, advantage=after).load(tmp_path, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_the_two_values_are_learned_apart(policy: Path, kind: str) -> None:
    """Everywhere a sure success that is two turns away."""
    chains = []
    for chain in with_two_values(some_chains(0)):
        targets = {"cross_entropy": 1.0, "huber": -2.0}
        lessons: list[tuple[Lesson, float]] = [
            (lesson, targets[output.loss]) for output in BOTH for lesson in output.lessons
        ]
        columns = {lesson.target: np.full(chain.trained(), n, "f4") for lesson, n in lessons}
        weights = {lesson.weight: np.full(chain.trained(), 0.01, "f4") for lesson, _ in lessons}
        chains.append(replace(chain, columns={**columns, **weights}))
    backend = opened(policy, kind, critic={**KINDS[kind], "lr": 0.1})
    for _ in range(60):
        backend.train(step(chains))
    after = values(backend, chains)
    for name in (Column.VIABILITY, Column.END_VIABILITY):
        assert np.mean(after[name]) > 2
    for name in (Column.EFFICIENCY, Column.END_EFFICIENCY):
        assert np.mean(after[name]) == pytest.approx(-2, abs=0.3)
