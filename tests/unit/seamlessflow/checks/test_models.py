"""Models beside the policy, which the trainer would only look for behind the start of the run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.checks.check import before_recorded_training, before_training
from seamlessflow.config_file import Check
from tests.builders.run_files import changed, faults, model_directory, model_headers, run_values

USES: Mapping[str, Mapping[str, Any]] = {
    "trainer.teacher": {"advantage": "distill"},
    "trainer.reference": {"loss": {"kl": 0.1}},
    "trainer.critic.model": {"advantage": "gae"},
}
used = pytest.mark.parametrize("setting", USES)


def naming(setting: str, directory: Path) -> Mapping[str, Any]:
    """Return settings of `trainer` that name the directory, but do not use it."""
    _, first, *rest = setting.split(".")
    return {first: {rest[0]: directory} if rest else directory}


def refusals(
    folder: Path,
    setting: str,
    directory: Path,
    check: Check = before_recorded_training,
    **more: Any,
) -> Sequence[str]:
    trainer = {**naming(setting, directory), **more}
    return faults(changed(run_values(folder), "trainer", **trainer), check)


@used
def test_a_directory_that_is_not_there_is_refused(setting: str, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    line = f"{setting}: there is no directory {nowhere}"
    assert refusals(tmp_path, setting, nowhere, **USES[setting]) == (line,)


def test_a_training_with_agents_is_checked_too(tmp_path: Path) -> None:
    nowhere, setting = tmp_path / "nowhere", "trainer.teacher"
    lines = refusals(tmp_path, setting, nowhere, before_training, **USES[setting])
    assert f"{setting}: there is no directory {nowhere}" in lines


@used
def test_a_model_with_another_tokenizer_is_refused(setting: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = model_directory(tmp_path / "other")
    (other / "tokenizer.json").write_text("{}")
    (line,) = refusals(tmp_path, setting, other, **USES[setting])
    assert line.startswith(f"{setting}: the tokenizer.json of {other} is not that of policy.model")


@used
def test_a_model_with_the_policys_tokenizer_may_start(setting: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert refusals(tmp_path, setting, model_directory(tmp_path / "other"), **USES[setting]) == ()


@pytest.mark.parametrize("setting", ["trainer.reference", "trainer.critic.model"])
def test_a_directory_that_nothing_uses_is_not_looked_at(setting: str, tmp_path: Path) -> None:
    assert refusals(tmp_path, setting, tmp_path / "nowhere") == ()


def trained(folder: Path, config: Mapping[str, Any], **trainer: Any) -> Sequence[str]:
    """Return the faults of training a model of the form of Qwen3-8B with other numbers of it."""
    values = changed(run_values(folder), "trainer", **trainer)
    model_headers(folder / "model", **config)
    return [line for line in faults(values, before_training) if line.startswith("trainer.")]


def test_layers_that_the_ranks_do_not_divide_are_named_before_the_start(tmp_path: Path) -> None:
    megatron = {"backend": "megatron", "ranks": 16, "megatron": {"tensor_parallel": 16}}
    workers = [{"id": "w", "tags": ["rollout", "train"], "devices": list(range(16))}]
    values = {**changed(run_values(tmp_path), "trainer", **megatron), "workers": workers}
    model_headers(tmp_path / "model", num_hidden_layers=1, hidden_size=64, vocab_size=64)
    text = "16 does not divide the num_key_value_heads of policy.model, 8"
    assert f"trainer.megatron.tensor_parallel: {text}" in faults(values, before_training)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "mixtral"}, "is a mixtral, not one of llama, qwen2, qwen3"),
        ({"hidden_act": "gelu"}, "has the hidden_act gelu, not silu"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "has layers with sliding"),
        ({"rope_scaling": {"type": "yarn"}}, "has the rope_type yarn, not one of default, linear"),
    ],
)
def test_a_model_that_megatron_cannot_train_is_named_before_the_start(
    config: Mapping[str, Any], reason: str, tmp_path: Path
) -> None:
    small = {"num_hidden_layers": 1, "hidden_size": 64, "vocab_size": 64}
    [line] = trained(tmp_path, {**small, **config}, backend="megatron")
    assert line.startswith(
        f"trainer.backend: megatron cannot train {tmp_path / 'model'}: it {reason}"
    )


def test_layers_that_an_adapter_does_not_find_are_named_before_the_start(tmp_path: Path) -> None:
    small = {"num_hidden_layers": 1, "hidden_size": 64, "vocab_size": 64}
    [line] = trained(tmp_path, small, adapter={"rank": 4, "targets": ["q_proj", "q_prj"]})
    assert line == (
        "trainer.adapter.targets: policy.model has no layers q_prj, but down_proj, gate_proj, "
        "k_proj, o_proj, q_proj, up_proj, v_proj; did you mean q_proj?"
    )


def test_layers_of_a_model_of_another_form_are_left_to_the_trainer(tmp_path: Path) -> None:
    mixture = {"num_hidden_layers": 1, "hidden_size": 64, "vocab_size": 64, "num_experts": 8}
    assert trained(tmp_path, mixture, adapter={"rank": 4, "targets": ["q_prj"]}) == []


def sampled(folder: Path, devices: int, **more: Any) -> Sequence[str]:
    """Return the faults of sampling with vLLM from 12 heads, and 4 of keys, on some devices."""
    workers = [{"id": "w", "tags": ["rollout"], "devices": list(range(devices))}]
    rollout = {"engine": "vllm", "vllm": {"url": None, **more.pop("vllm", {})}}
    values = {**run_values(folder), "workers": workers, "rollout": rollout, **more}
    (folder / "model" / "config.json").write_text(
        json.dumps({"num_attention_heads": 12, "num_key_value_heads": 4})
    )
    return [line for line in faults(values, before_training) if "vLLM" in line]


@pytest.mark.parametrize(
    ("devices", "undivided"),
    [
        (1, ()),
        (4, ()),
        (12, ()),
        (5, ("num_attention_heads", "num_key_value_heads")),
        (6, ("num_key_value_heads",)),
    ],
)
def test_heads_that_vllm_does_not_divide_are_named_before_the_start(
    devices: int, undivided: Sequence[str], tmp_path: Path
) -> None:
    lines = sampled(tmp_path, devices)
    assert len(lines) == len(undivided)
    for line, name in zip(lines, undivided, strict=True):
        assert line.startswith(f"rollout.vllm.tensor_parallel: vLLM cannot divide the {name} of")
    whole_copies = {"replicas": devices, "tensor_parallel": 1}
    assert sampled(tmp_path, devices, vllm=whole_copies) == []


def test_an_adapter_that_vllm_cannot_load_is_named_before_the_start(tmp_path: Path) -> None:
    def with_rank(rank: int) -> Sequence[str]:
        return sampled(tmp_path, 1, trainer={"adapter": {"rank": rank}})

    assert with_rank(512) == []
    text = "vLLM loads adapters of at most rank 512, not 513"
    assert with_rank(513) == [f"trainer.adapter.rank: {text}"]
