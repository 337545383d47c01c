"""An adapter is trained alone: gradients, moments, checkpoints, files, and what does not fit."""

from pathlib import Path
from shutil import copytree
from typing import cast

import numpy as np
import pytest
import torch
from peft import PeftModel
from pydantic import ValidationError
from safetensors.torch import load_file
from transformers import PreTrainedModel

from seamlessflow.infra.weights.adapter import CONFIG, TENSORS
from seamlessflow.infra.weights.tensors import tensors_hash
from seamlessflow.trainer.backends.adapter.whole_model import merge
from seamlessflow.trainer.backends.backend import ModelUnusable, StepInput
from seamlessflow.trainer.backends.optimizer_state import OPTIMIZER, WEIGHTS
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import Column
from seamlessflow.trainer.data.packing import pack
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.chains import forked_chains, sampled, some_chains, with_advantages
from tests.builders.trainer.models import exact_model, logprobs, open_tiny, write_tiny

LAYERS = 14
"""Linear layers of the tiny model, but for its output."""
IDS = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("base"))


def section(**more: object) -> TrainerSection:
    return TrainerSection.model_validate(
        {"device": "cpu", "threads": 1, "adapter": {"rank": 2}, **more}
    )


def opened(base: Path, **more: object) -> TorchBackend:
    backend = TorchBackend(base, section(**more))
    backend.load(None, 0)
    return backend


def step(seed: int = 0) -> StepInput:
    batches = pack(with_advantages(some_chains(seed), [1.0, -1.0] * 3), 64, "padded")
    return StepInput(batches, [], 0, 0.05)


def written(backend: TorchBackend, directory: Path) -> Path:
    directory.mkdir()
    backend.write_weights(directory)
    return directory


def saved(backend: TorchBackend, directory: Path) -> Path:
    backend.snapshot()
    directory.mkdir()
    backend.save(directory)
    return directory


def test_only_the_adapter_has_gradients_and_moments_and_is_saved(
    base: Path, tmp_path: Path
) -> None:
    backend = opened(base)
    gradients = list(backend.gradients(step()))[-1]
    assert len(gradients) == 2 * LAYERS
    assert all(".lora_" in name for name in gradients)
    backend.train(step())
    files = saved(backend, tmp_path / "checkpoint")
    assert load_file(files / WEIGHTS).keys() == gradients.keys()
    moments = load_file(files / OPTIMIZER)
    assert {name.partition("/")[2] for name in moments} == gradients.keys()


def test_an_adapter_begins_as_the_base_and_equally_for_one_seed(base: Path, tmp_path: Path) -> None:
    first, same, other = (
        written(opened(base, seed=seed), tmp_path / f"{n}") for n, seed in enumerate((1, 1, 2))
    )
    assert tensors_hash(first) == tensors_hash(same) != tensors_hash(other)
    merge(base, first, tmp_path / "merged")
    assert tensors_hash(tmp_path / "merged") == tensors_hash(base)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing")  # peft asks for it
def test_what_is_published_is_small_and_what_peft_and_merging_make_of_it_is_what_was_trained(
    base: Path, tmp_path: Path
) -> None:
    backend = opened(base, adapter={"rank": 2, "alpha": 8})
    for seed in range(3):
        backend.train(step(seed))
    files = written(backend, tmp_path / "adapter")
    assert sorted(path.name for path in files.iterdir()) == [CONFIG, TENSORS]
    merge(base, files, tmp_path / "merged")
    merged = logprobs(open_tiny(tmp_path / "merged"), IDS)
    assert merged != pytest.approx(logprobs(open_tiny(base), IDS), abs=1e-3)
    by_peft = PeftModel.from_pretrained(open_tiny(base), str(files))
    assert logprobs(cast(PreTrainedModel, by_peft), IDS) == pytest.approx(merged, abs=1e-5)
    chains = sampled(tmp_path / "merged", version=0)
    packed = pack(chains, 64, "padded")
    proximal = backend.annotate(packed, [Column.PROXIMAL])[Column.PROXIMAL]
    for batch, found_N in zip(packed, proximal, strict=True):
        assert found_N == pytest.approx(batch.logprobs_N, abs=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_resumed_run_repeats_a_step_to_the_digit(base: Path, tmp_path: Path, dtype: str) -> None:
    first = opened(base, dtype=dtype)
    first.train(step())
    files = saved(first, tmp_path / "checkpoint")
    wanted = first.train(step(1))
    second = TorchBackend(base, section(dtype=dtype))
    second.load(files, 1)
    assert second.train(step(1)) == wanted
    state, again = first.state(), second.state()
    for file in (WEIGHTS, OPTIMIZER):
        pairs = [(again[file][name].values, part.values) for name, part in state[file].items()]
        assert all(torch.equal(tensor, other) for tensor, other in pairs)


def test_masters_are_float32_while_the_base_has_the_type_it_computes_in(
    base: Path, tmp_path: Path
) -> None:
    backend = opened(base, dtype="bfloat16", gradient_checkpointing=True)
    norm = opened(base, dtype="bfloat16").train(step())["grad_norm"]
    assert backend.train(step())["grad_norm"] == pytest.approx(norm, rel=1e-3)
    assert norm > 0
    types = {part.values.dtype for part in backend.state()[WEIGHTS].values()}
    assert types == {torch.float32}
    halves = load_file(written(backend, tmp_path / "adapter") / TENSORS)
    assert {tensor.dtype for tensor in halves.values()} == {torch.bfloat16}


def test_the_reference_is_the_base_however_far_the_adapter_is(base: Path) -> None:
    backend = opened(base, loss={"kl": 0.1})
    packed = pack(forked_chains(3), 64, "padded")
    wanted = backend.annotate(packed, [Column.REFERENCE])[Column.REFERENCE]
    backend.train(step())
    columns = backend.annotate(packed, [Column.REFERENCE, Column.PROXIMAL])
    after, proximal = columns[Column.REFERENCE], columns[Column.PROXIMAL]
    for before_N, after_N, own_N in zip(wanted, after, proximal, strict=True):
        assert np.array_equal(before_N, after_N)
        assert not np.allclose(after_N, own_N, atol=1e-3)


def test_earlier_versions_are_kept_and_measured_by_their_adapters(base: Path) -> None:
    # Two copies of the whole model would not fit.
    backend = opened(base, mismatch_memory_mb=1)
    old = pack(sampled(base, version=0), 64, "padded")
    trained = step()
    backend.train(trained)
    metrics = backend.train(StepInput(trained.micro_batches, old, 1, 0.05))
    assert metrics["mismatch_tokens"] > 0
    assert metrics["mismatch_max"] < 1e-4


def test_a_checkpoint_of_another_base_or_adapter_is_refused(base: Path, tmp_path: Path) -> None:
    files = saved(opened(base), tmp_path / "checkpoint")
    other = copytree(base, tmp_path / "other")
    write_tiny(other, seed=1)
    for directory, adapter, what in (
        (other, {"rank": 2}, "base model"),
        (base, {"rank": 2, "alpha": 6}, "scale"),
        (base, {"rank": 4}, "rank"),
        (base, {"rank": 0}, "rank"),
        (base, {"rank": 2, "targets": ["q_proj"]}, "another model"),
    ):
        with pytest.raises(ModelUnusable, match=what):
            TorchBackend(directory, section(adapter=adapter)).load(files, 1)
    whole = saved(opened(base, adapter={"rank": 0}), tmp_path / "whole")
    with pytest.raises(ModelUnusable, match="another adapter"):
        TorchBackend(base, section()).load(whole, 1)


def test_layers_that_the_model_lacks_are_refused_with_those_it_has(base: Path) -> None:
    with pytest.raises(ModelUnusable, match=r"lm_head.*only down_proj, gate_proj"):
        opened(base, adapter={"rank": 2, "targets": ["q_proj", "lm_head"]})


def test_settings_that_no_adapter_can_have_are_refused() -> None:
    with pytest.raises(ValidationError, match="last name"):
        section(adapter={"rank": 2, "targets": ["layers.0.q_proj"]})
    with pytest.raises(ValidationError, match="an adapter is unproven with backend megatron"):
        section(backend="megatron")
    with pytest.raises(ValidationError, match="dropout"):
        section(adapter={"rank": 2, "dropout": 0.1})


def test_a_model_without_linear_layers_has_no_place_for_an_adapter(tmp_path: Path) -> None:
    exact_model().save_pretrained(tmp_path)  # its layers are of another class
    with pytest.raises(ModelUnusable, match="has no linear layer"):
        TorchBackend(tmp_path, section())
