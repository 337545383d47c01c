"""The critic as a head: values and gradients are those of a formula in float64, in one pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen3Model

from seamlessflow.trainer.backends.backend import ModelUnusable, StepInput
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import Chain, Column
from seamlessflow.trainer.data.credit.phase import by_chain
from seamlessflow.trainer.data.packing import Layout, pack
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.chains import some_chains, with_advantages, with_returns
from tests.builders.trainer.models import open_tiny, write_tiny

ADVANTAGES = [1.0, -1.0, 0.5, -2.0, 0.3, 1.5]
UNCLIPPED = {"clip_norm": 1e9}
CLIP = 0.2


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("policy"))


def headed(policy: Path, critic: dict[str, object] | None = None, **more: object) -> TorchBackend:
    head = {"kind": "head", "lr": 0.01, "clip": CLIP, **(critic or {})}
    settings = {"device": "cpu", "threads": 1, "advantage": "gae", "optimizer": UNCLIPPED}
    backend = TorchBackend(
        policy, TrainerSection.model_validate({**settings, "critic": head, **more})
    )
    backend.load(None, 0)
    backend.acquire()
    return backend


def taught(advantages: list[float] = ADVANTAGES, seed: int = 0) -> list[Chain]:
    return with_returns(with_advantages(some_chains(seed), advantages))


def step(chains: list[Chain], layout: Layout = "padded", budget: int = 64) -> StepInput:
    return StepInput(pack(chains, budget, layout), [], 0, 0.05)


def values(backend: TorchBackend, chains: list[Chain], layout: Layout = "padded") -> list[float]:
    packed = pack(chains, 64, layout)
    columns = by_chain(chains, packed, backend.annotate(packed, [Column.VALUE]))
    return [value for chain_columns in columns for value in chain_columns[Column.VALUE].tolist()]


def saved(backend: TorchBackend, directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    backend.snapshot()
    backend.save(directory)
    return directory


def with_some_head(backend: TorchBackend, directory: Path) -> dict[str, Tensor]:
    """Give the head weights that are not 0; return them."""
    torch.manual_seed(3)
    file = saved(backend, directory) / "critic-weights.safetensors"
    weights = {name: torch.randn_like(tensor) / 4 for name, tensor in load_file(file).items()}
    save_file(weights, file)
    backend.load(directory, 0)
    return weights


def by_formula(
    policy: Path, head: dict[str, Tensor], chains: list[Chain], coefficient: float
) -> tuple[list[float], dict[str, Tensor], dict[str, Tensor]]:
    """Return values, the gradient of the policy and that of the head, one chain at a time."""
    model = open_tiny(policy).double()
    weight_1H, bias_1 = (head[name].double().requires_grad_() for name in ("weight", "bias"))
    total, predictions = sum(chain.trained() for chain in chains), list[float]()
    policy_loss = value_loss = torch.zeros((), dtype=torch.float64)
    for chain in chains:
        tokens, column = chain.tokens, iter(range(chain.trained()))
        ids = torch.from_numpy(tokens.ids_T.astype(np.int64))
        output = model(input_ids=ids[None], use_cache=False, output_hidden_states=True)
        table = output.logits[0].log_softmax(-1)
        for place in np.flatnonzero(tokens.trained_T):
            number = next(column)
            ratio = (table[place - 1, ids[place]] - float(tokens.logprobs_T[place])).exp()
            advantage = float(tokens.advantages_T[place])
            bounded = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)
            if advantage < 0:
                bounded = bounded.clamp(min=3.0 * float(advantage))
            policy_loss = policy_loss - bounded / total
            value = (output.hidden_states[-1][0, place - 1] * weight_1H[0]).sum() + bias_1[0]
            target, before = (
                float(chain.columns[name][number]) for name in (Column.TARGET, Column.VALUE)
            )
            now = value.item()
            near = min(max(now, before - CLIP), before + CLIP)
            # Where the bounded one is worse, its error is constant and has no gradient.
            if abs(now - target) >= abs(near - target):
                value_loss = value_loss + (value - target) ** 2 / 2 / total
            predictions.append(now)
    of_head = torch.autograd.grad(value_loss, [weight_1H, bias_1], retain_graph=True)
    torch.autograd.backward(policy_loss + coefficient * value_loss)
    of_policy = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return predictions, of_policy, dict(zip(("weight", "bias"), of_head, strict=True))


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("coefficient", [0.0, 0.5])
def test_values_and_gradients_are_those_of_the_formula(
    policy: Path, tmp_path: Path, layout: Layout, coefficient: float
) -> None:
    chains, backend = taught(), headed(policy, {"coefficient": coefficient})
    head = with_some_head(backend, tmp_path / "begun")
    predictions, of_policy, of_head = by_formula(policy, head, chains, coefficient)
    assert values(backend, chains, layout) == pytest.approx(predictions, abs=1e-5)
    *_, gradient = backend.gradients(step(chains, layout))
    assert gradient.keys() == of_policy.keys()
    for name, wanted in of_policy.items():
        torch.testing.assert_close(gradient[name].double(), wanted, atol=1e-6, rtol=1e-4)
    backend.train(step(chains, layout))
    # The first mean of AdamW is the gradient times 1 - beta1.
    means = load_file(saved(backend, tmp_path / "trained") / "critic-optimizer.safetensors")
    for name, wanted in of_head.items():
        head_gradient = means[f"exp_avg/{name}"].double() / (1 - 0.9)
        torch.testing.assert_close(
            head_gradient, wanted.reshape(head_gradient.shape), atol=1e-6, rtol=1e-4
        )


def test_a_coefficient_changes_the_gradient_of_the_policy(policy: Path, tmp_path: Path) -> None:
    """Else the test above shows nothing of it."""
    norms = []
    for coefficient in (0.0, 0.5):
        backend = headed(policy, {"coefficient": coefficient})
        with_some_head(backend, tmp_path)
        norms.append(backend.train(step(taught()))["grad_norm"])
    assert norms[1] != pytest.approx(norms[0], rel=1e-2)


def test_without_a_coefficient_values_do_not_move_the_policy(policy: Path, tmp_path: Path) -> None:
    backend = headed(policy)
    with_some_head(backend, tmp_path)
    metrics = backend.train(step(taught([0.0] * 6)))
    assert metrics["grad_norm"] == 0
    assert metrics["value_loss"] > 0


def test_a_head_begins_at_zero_and_learns_returns(policy: Path) -> None:
    chains = [
        replace(chain, columns={**chain.columns, Column.TARGET: np.ones(chain.trained(), "f4")})
        for chain in taught([0.0] * 6)
    ]
    backend = headed(policy, {"clip": 10.0})
    assert not any(values(backend, chains))
    losses = [backend.train(step(chains))["value_loss"] for _ in range(40)]
    assert losses[-1] < losses[0] / 10
    assert np.mean(values(backend, chains)) == pytest.approx(1.0, abs=0.3)


@contextmanager
def passes() -> Iterator[list[int]]:
    """Count the tokens of each pass of a whole model, forward."""
    counts: list[int] = []

    def note(module: object, _: object, output: object) -> None:
        if isinstance(module, Qwen3Model):
            states = getattr(output, "last_hidden_state", None)
            assert isinstance(states, Tensor)
            counts.append(states.shape[0] * states.shape[1])

    handle = torch.nn.modules.module.register_module_forward_hook(note)
    try:
        yield counts
    finally:
        handle.remove()


def test_policy_and_values_are_computed_in_one_pass(policy: Path) -> None:
    step_input = step(taught())
    two_models = headed(policy, {"kind": "model"})
    backend = headed(policy)
    for trainer, wanted in ((backend, 1), (two_models, 2)):
        with passes() as computed:
            trainer.train(step_input)
        assert sum(computed) == wanted * sum(
            batch.ids_BT.size for batch in step_input.micro_batches
        )


def test_columns_of_the_policy_and_values_are_annotated_in_one_pass(policy: Path) -> None:
    packed = pack(taught(), 64, "padded")
    backend = headed(policy)
    with passes() as computed:
        columns = backend.annotate(packed, [Column.ENTROPY, Column.PROXIMAL, Column.VALUE])
    assert len(computed) == len(packed)
    alone = backend.annotate(packed, [Column.VALUE])
    for values_N, other in zip(columns[Column.VALUE], alone[Column.VALUE], strict=True):
        assert values_N.tolist() == other.tolist()


def test_published_weights_have_no_head(policy: Path, tmp_path: Path) -> None:
    backend = headed(policy, {"coefficient": 0.5})
    backend.train(step(taught()))
    backend.write_weights(tmp_path)
    (file,) = tmp_path.glob("*.safetensors")
    assert load_file(file).keys() == load_file(policy / "model.safetensors").keys()
    assert saved(backend, tmp_path / "checkpoint").joinpath("critic-weights.safetensors").is_file()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_head_goes_on_from_a_checkpoint_to_the_digit(
    policy: Path, tmp_path: Path, dtype: str
) -> None:
    critic: dict[str, object] = {"coefficient": 0.1}
    first = headed(policy, critic, dtype=dtype)
    first.train(step(taught()))
    saved(first, tmp_path)
    # The role changes hands between steps.
    first.release()
    first.acquire()
    wanted = first.train(step(taught(seed=1)))
    second = headed(policy, critic, dtype=dtype)
    second.load(tmp_path, 1)
    assert second.train(step(taught(seed=1))) == wanted
    assert values(second, taught()) == values(first, taught())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_values_in_half_precision_are_nearly_the_same(
    policy: Path, tmp_path: Path, dtype: str
) -> None:
    exact, half = (
        headed(policy, {"coefficient": 0.5}, dtype=precision) for precision in ("float32", dtype)
    )
    for backend in (exact, half):
        with_some_head(backend, tmp_path)
    assert values(half, taught()) == pytest.approx(values(exact, taught()), abs=0.05)
    wanted, metrics = (backend.train(step(taught())) for backend in (exact, half))
    for name in ("value_loss", "grad_norm"):
        assert metrics[name] == pytest.approx(wanted[name], rel=0.1)


def test_recomputed_activations_give_the_same_gradient(policy: Path, tmp_path: Path) -> None:
    gradients = []
    for frugal in (False, True):
        backend = headed(policy, {"coefficient": 0.5}, gradient_checkpointing=frugal)
        with_some_head(backend, tmp_path)
        *_, gradient = backend.gradients(step(taught()))
        gradients.append(dict(gradient))
    for name, wanted in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], wanted, atol=1e-6, rtol=1e-4)


def test_a_gradient_of_values_that_overflows_when_scaled_is_computed_again(
    policy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def far() -> StepInput:
        return step(
            [
                replace(
                    chain,
                    columns={**chain.columns, Column.TARGET: chain.columns[Column.TARGET] * 3e3},
                )
                for chain in taught()
            ]
        )

    critic: dict[str, object] = {"coefficient": 0.5, "clip": 1e9}
    half, exact = (headed(policy, critic, dtype=precision) for precision in ("float16", "float32"))
    for _ in range(2):
        metrics, wanted = half.train(far()), exact.train(far())
    assert "again with a smaller one" in caplog.text
    assert metrics["value_loss"] == pytest.approx(wanted["value_loss"], rel=0.01)


@pytest.mark.parametrize(("before", "after"), [("head", "model"), ("model", "head")])
def test_a_checkpoint_with_a_critic_of_another_kind_is_refused(
    policy: Path, tmp_path: Path, before: str, after: str
) -> None:
    saved(headed(policy, {"kind": before}), tmp_path)
    with pytest.raises(ModelUnusable, match="its critic is another one"):
        headed(policy, {"kind": after}).load(tmp_path, 1)


@pytest.mark.parametrize(
    ("critic", "reason"),
    [
        ({"kind": "head", "model": "here"}, "kind head reads the policy's states"),
        ({"coefficient": 0.1}, r"set critic\.kind head"),
        ({"kind": "heads"}, "Input should be 'model' or 'head'"),
    ],
)
def test_settings_of_another_kind_of_critic_are_refused(
    critic: dict[str, object], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        TrainerSection.model_validate({"advantage": "gae", "critic": critic})
