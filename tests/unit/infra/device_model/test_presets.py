"""Sizes of models by name and by directory."""

from pathlib import Path

import pytest

from seamlessflow.infra.device_model.model_shape import ShapeUnknown
from seamlessflow.infra.device_model.presets import UnknownPreset, model_named
from tests.builders.models import config, random_model, saved
from tests.builders.run_files import model_headers


def test_a_directory_with_qwen3_8b_has_the_sizes_of_the_preset(tmp_path: Path) -> None:
    preset, read = model_named("Qwen3-8B"), model_named(str(model_headers(tmp_path)))

    assert (read.layers, read.kv_bytes, read.attention_width) == (
        preset.layers,
        preset.kv_bytes,
        preset.attention_width,
    )
    assert read.parameters == read.active == pytest.approx(preset.parameters, rel=0.01)


def test_of_a_mixture_of_experts_a_token_uses_a_part(tmp_path: Path) -> None:
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    built = random_model(config("qwen3_moe", decoder_sparse_step=1, **experts))
    read = model_named(str(saved(built, tmp_path)))

    in_experts = sum(part.numel() for name, part in built.named_parameters() if "experts" in name)
    assert read.parameters == built.num_parameters()
    assert read.active == pytest.approx(read.parameters - 0.75 * in_experts)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownPreset, match="no model 'Qwen3-9B' is known"):
        model_named("Qwen3-9B")
    with pytest.raises(ShapeUnknown, match=r"config\.json: No such file"):
        model_named(str(tmp_path))
    with pytest.raises(ShapeUnknown, match="keys are compressed"):
        model_named(str(model_headers(tmp_path / "mla", kv_lora_rank=512)))
