"""The torch back end: the formula's gradients, of trained tokens only, however they are packed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from seamlessflow.trainer.backends.backend import ModelUnusable, StepInput
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import Chain, chains
from seamlessflow.trainer.data.packing import Layout, pack
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.chains import sampled, some_chains, with_advantages
from tests.builders.trainer.models import VOCABULARY, open_tiny, write_tiny, write_windowed
from tests.builders.trainer.trajectories import Run, trajectory

SETTINGS = TrainerSection(device="cpu", threads=1)


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Compute in two threads, in this test alone."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def step(
    step_chains: list[Chain],
    advantages: list[float],
    budget: int = 64,
    layout: Layout = "padded",
    version: int = 0,
) -> StepInput:
    return StepInput(
        pack(with_advantages(step_chains, advantages), budget, layout), [], version, 0.05
    )


def gradient(backend: TorchBackend, step: StepInput) -> dict[str, Tensor]:
    """The whole gradient of a step, by parameter."""
    *_, whole = backend.gradients(step)
    return dict(whole)


def reference(
    directory: Path, step_chains: list[Chain], advantages: list[float]
) -> dict[str, Tensor]:
    """The gradient of clipped GRPO, written down directly: one chain at a time, no packing."""
    model = open_tiny(directory)
    total = sum(chain.trained() for chain in step_chains)
    for chain, advantage in zip(step_chains, advantages, strict=True):
        ids = torch.from_numpy(chain.tokens.ids_T.astype(np.int64))
        table = model(input_ids=ids[None], use_cache=False).logits[0].log_softmax(-1)
        loss = torch.zeros(())
        for place in np.flatnonzero(chain.tokens.trained_T):
            ratio = (table[place - 1, ids[place]] - float(chain.tokens.logprobs_T[place])).exp()
            free, bound = ratio * advantage, ratio.clamp(0.8, 1.28) * advantage
            kept = torch.minimum(free, bound)
            if advantage < 0:
                kept = torch.maximum(kept, torch.tensor(3.0 * advantage))
            loss = loss - kept / total
        torch.autograd.backward(loss)
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def assert_equal(tensors: dict[str, Tensor], other: dict[str, Tensor], atol: float = 1e-6) -> None:
    assert tensors.keys() == other.keys()
    for name in tensors:
        torch.testing.assert_close(tensors[name], other[name], atol=atol, rtol=1e-4)


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("budget", [16, 1000])
def test_the_gradient_is_that_of_the_formula_however_chains_are_packed(
    model_directory: Path, layout: Layout, budget: int
) -> None:
    step_chains, advantages = some_chains(), [1.0, -1.0, 0.5, -2.0, 0.0, 1.5]
    backend = TorchBackend(model_directory, SETTINGS)
    assert_equal(
        gradient(backend, step(step_chains, advantages, budget, layout)),
        reference(model_directory, step_chains, advantages),
    )


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_layers_with_a_sliding_window_see_the_same_packed_and_alone(
    tmp_path: Path, layout: Layout
) -> None:
    directory = write_windowed(tmp_path, window=3)
    step_chains, advantages = some_chains(), [1.0, -1.0, 0.5, -2.0, 0.0, 1.5]
    assert max(len(chain.tokens.ids_T) for chain in step_chains) > 3
    backend = TorchBackend(directory, SETTINGS)
    assert_equal(
        gradient(backend, step(step_chains, advantages, 1000, layout)),
        reference(directory, step_chains, advantages),
        atol=1e-5,
    )


def test_losses_are_equal_however_chains_are_packed(model_directory: Path) -> None:
    step_chains, advantages = some_chains(), [1.0, -1.0, 0.5, -2.0, 0.3, 1.5]
    losses = [
        TorchBackend(model_directory, SETTINGS).train(step(step_chains, advantages, budget, layout))
        for budget in (16, 1000)
        for layout in get_args(Layout)
    ]
    for name in ("loss", "entropy", "policy_kl", "grad_norm", "effective_sample_size"):
        assert [metrics[name] for metrics in losses] == pytest.approx(
            [losses[0][name]] * len(losses), abs=1e-6
        )


def test_what_masked_tokens_say_does_not_change_the_gradient(model_directory: Path) -> None:
    step_chains, advantages = some_chains(), [1.0] * 6
    backend = TorchBackend(model_directory, SETTINGS)
    before = gradient(backend, step(step_chains, advantages))
    for chain in step_chains:
        chain.tokens.logprobs_T[~chain.tokens.trained_T] = -7.0
    assert_equal(gradient(backend, step(step_chains, advantages)), before, atol=0)


def test_tokens_without_advantage_leave_the_weights_alone(model_directory: Path) -> None:
    backend = TorchBackend(model_directory, SETTINGS)
    assert backend.train(step(some_chains(), [0.0] * 6))["grad_norm"] == 0


@pytest.mark.parametrize("layout", get_args(Layout))
def test_each_token_is_compared_at_the_temperature_it_was_sampled_at(
    model_directory: Path, layout: Layout
) -> None:
    step_chains = sampled(model_directory, version=3, temperatures=(0.7, 1.0, 1.7))
    backend = TorchBackend(model_directory, SETTINGS)
    metrics = backend.train(step(step_chains, [1.0] * 4, layout=layout, version=3))
    assert metrics["mismatch_max"] < 1e-5
    assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-5)


def test_the_gradient_is_that_of_the_policy_at_the_temperature(model_directory: Path) -> None:
    (chain, *_) = sampled(model_directory, version=3, temperatures=(0.5,))
    model = open_tiny(model_directory)
    ids = torch.from_numpy(chain.tokens.ids_T.astype(np.int64))
    table = (model(input_ids=ids[None], use_cache=False).logits[0] / 0.5).log_softmax(-1)
    places = np.flatnonzero(chain.tokens.trained_T)
    torch.autograd.backward(-table[places - 1, ids[places]].mean())
    wanted = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    backend = TorchBackend(model_directory, SETTINGS)
    assert_equal(gradient(backend, step([chain], [1.0], version=3)), wanted, atol=1e-5)


def test_an_engine_with_the_same_weights_has_no_mismatch(model_directory: Path) -> None:
    step_chains = sampled(model_directory, version=3)
    metrics = TorchBackend(model_directory, SETTINGS).train(step(step_chains, [1.0] * 4, version=3))
    assert metrics["mismatch_tokens"] == 24
    assert metrics["mismatch_max"] < 1e-5
    assert metrics["effective_sample_size"] == pytest.approx(1)
    assert metrics["ratio_mean"] == pytest.approx(1)


def test_the_mismatch_of_an_older_version_is_measured_under_its_own_weights(
    model_directory: Path,
) -> None:
    backend = TorchBackend(model_directory, SETTINGS)
    backend.remember(0)
    old = sampled(model_directory, version=0)
    backend.train(step(some_chains(), [1.0, -1.0, 1.0, -1.0, 1.0, -1.0]))
    batches = pack(old, 64, "padded")
    metrics = backend.train(StepInput(batches, batches, 1, 0.05))
    assert metrics["mismatch_tokens"] == 24
    assert metrics["mismatch_max"] < 1e-5
    assert metrics["policy_kl"] > 1e-3


def test_a_wrong_engine_shows_as_mismatch(model_directory: Path) -> None:
    step_chains = sampled(model_directory, version=3)
    for chain in step_chains:
        chain.tokens.logprobs_T[:] -= 0.1
    metrics = TorchBackend(model_directory, SETTINGS).train(step(step_chains, [1.0] * 4, version=3))
    assert metrics["mismatch_mean"] == pytest.approx(0.1, abs=1e-4)
    assert metrics["mismatch_kl"] == pytest.approx(np.exp(0.1) - 1.1, abs=1e-4)


def test_only_so_many_versions_and_bytes_are_remembered(model_directory: Path) -> None:
    settings = SETTINGS.model_copy(update={"mismatch_versions": 1})
    backend = TorchBackend(model_directory, settings)
    for version in range(4):
        backend.remember(version)
    assert backend.remembered() == (2, 3)
    frugal = TorchBackend(model_directory, SETTINGS.model_copy(update={"mismatch_memory_mb": 0}))
    frugal.remember(0)
    assert frugal.remembered() == ()


def test_a_checkpoint_goes_on_as_if_nothing_had_happened(
    model_directory: Path, tmp_path: Path
) -> None:
    def after_two_more(backend: TorchBackend) -> dict[str, float]:
        backend.train(step(some_chains(1), [1.0, -1.0, 1.0, -1.0, 1.0, -1.0]))
        return backend.train(step(some_chains(2), [1.0, -1.0, 1.0, -1.0, 1.0, -1.0]))

    first = TorchBackend(model_directory, SETTINGS)
    first.train(step(some_chains(), [1.0, -1.0, 1.0, -1.0, 1.0, -1.0]))
    first.snapshot()
    # The files are written while training goes on.
    expected = after_two_more(first)
    first.save(tmp_path)
    second = TorchBackend(model_directory, SETTINGS)
    second.load(tmp_path, 1)
    assert after_two_more(second) == expected


def test_weights_on_disk_are_those_that_were_trained(model_directory: Path, tmp_path: Path) -> None:
    backend = TorchBackend(model_directory, SETTINGS)
    backend.train(step(some_chains(), [1.0, -1.0, 1.0, -1.0, 1.0, -1.0]))
    backend.write_weights(tmp_path)
    assert_equal(
        gradient(TorchBackend(tmp_path, SETTINGS), step(some_chains(3), [1.0] * 6)),
        gradient(backend, step(some_chains(3), [1.0] * 6)),
        atol=0,
    )


def test_weights_can_be_published_in_fewer_bits(model_directory: Path, tmp_path: Path) -> None:
    backend = TorchBackend(
        model_directory, SETTINGS.model_copy(update={"weights_dtype": "bfloat16"})
    )
    backend.write_weights(tmp_path)
    assert backend.dtype == "bfloat16"
    assert open_tiny(tmp_path).dtype == torch.bfloat16


def test_gradient_checkpointing_gives_the_same_gradient(model_directory: Path) -> None:
    frugal = SETTINGS.model_copy(update={"gradient_checkpointing": True})
    wanted = gradient(TorchBackend(model_directory, SETTINGS), step(some_chains(), [1.0] * 6))
    gradients = gradient(TorchBackend(model_directory, frugal), step(some_chains(), [1.0] * 6))
    assert_equal(gradients, wanted)


def test_a_directory_without_a_model_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable):
        TorchBackend(tmp_path, SETTINGS)


@pytest.mark.parametrize("threads", [1, 2, None])
@pytest.mark.usefixtures("two_threads")
def test_a_step_is_the_same_in_each_thread(threads: int | None, tmp_path: Path) -> None:
    """The trainer computes in a thread for work, and `replay train` in its main one."""
    directory = write_tiny(tmp_path, hidden_size=128, intermediate_size=384, num_hidden_layers=3)
    backend = TorchBackend(directory, TrainerSection(device="cpu", threads=threads))
    step_input = step(some_chains(), [0.5, -0.5, 1.0, -1.0, 2.0, 0.25])
    here = gradient(backend, step_input)
    with ThreadPoolExecutor(1) as other:
        in_thread = other.submit(gradient, backend, step_input).result()
    assert_equal(here, in_thread, atol=0)


@pytest.mark.usefixtures("two_threads")
def test_a_place_that_predicts_many_tokens_has_the_same_gradient_each_time(tmp_path: Path) -> None:
    """In layout tree the prompt of a group is there once, and many threads add its gradients."""
    directory = write_tiny(tmp_path, hidden_size=128, intermediate_size=384, num_hidden_layers=3)
    settings = TrainerSection(device="cpu", threads=2, layout="tree")
    backend = TorchBackend(directory, settings)
    prompt = Run([1, 2, 3, 4, 5], "prompt")
    answers = [Run([n % VOCABULARY], parent=0, parent_end=5, logprobs=[-3.5]) for n in range(600)]
    sessions = [trajectory([prompt, answer]) for answer in answers]
    group = [chain for session in sessions for chain in chains(session, "tiny").chains]
    step_input = step(group, [n * 37 % 11 - 5.0 for n in range(600)], 10_000, "tree")
    first = gradient(backend, step_input)
    for _ in range(9):
        assert_equal(first, gradient(backend, step_input), atol=0)
