"""Sizes of a model from its configuration and headers."""

import json
from pathlib import Path

import pytest

from seamlessflow.infra.device_model.model_shape import (
    ShapeUnknown,
    context_limit,
    positions_of,
    read_shape,
)
from tests.builders.models import config, model, random_model, saved
from tests.builders.run_files import model_headers


def test_a_model_of_the_form_of_qwen3_8b_has_its_published_number_of_parameters(
    tmp_path: Path,
) -> None:
    shape = read_shape(model_headers(tmp_path))
    assert shape.parameters == 8_190_735_360
    assert shape.outside == 2 * 151_936 * 4096 + 4096
    assert 36 * shape.block + shape.outside == shape.parameters
    assert shape.layer is not None
    assert (shape.layer.query_width, shape.layer.key_width, shape.layer.normed) == (
        4096,
        1024,
        True,
    )


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_those_that_transformers_counts(
    kind: str, tied: bool, tmp_path: Path
) -> None:
    built = model(kind, tied=tied)
    assert read_shape(saved(built, tmp_path)).parameters == built.num_parameters()


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("changes", [{"tied": True}, {"tied": False}])
def test_without_weights_the_configuration_implies_the_same_tensors(
    kind: str, changes: dict[str, bool], tmp_path: Path
) -> None:
    built = saved(model(kind, **changes), tmp_path / "whole")
    bare = tmp_path / "config.json"
    bare.write_bytes((built / "config.json").read_bytes())

    assert read_shape(bare) == read_shape(tmp_path) == read_shape(built)


def test_biases_of_a_configuration_count_also(tmp_path: Path) -> None:
    built = random_model(config("llama", attention_bias=True, mlp_bias=True))
    directory = saved(built, tmp_path)
    (directory / "model.safetensors").unlink()

    assert read_shape(directory).parameters == built.num_parameters()


def test_of_several_files_all_headers_count(tmp_path: Path) -> None:
    built = model()
    built.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert read_shape(tmp_path).parameters == built.num_parameters()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"num_experts": 128}, "num_experts in its config.json: a mixture of experts"),
        ({"intermediate_size": None}, "its config.json lacks intermediate_size"),
    ],
)
def test_of_another_model_only_the_parameters_are_known(
    changes: dict[str, int | None], text: str, tmp_path: Path
) -> None:
    shape = read_shape(model_headers(tmp_path, **changes))
    assert (shape.layer, shape.unknown) == (None, text)
    assert shape.parameters == 8_190_735_360


def test_a_directory_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ShapeUnknown, match=r"config\.json: No such file"):
        read_shape(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ShapeUnknown, match=r"no safetensors files, and .*model_type is None"):
        read_shape(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"version https://git-lfs")
    with pytest.raises(ShapeUnknown, match="no safetensors file"):
        read_shape(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ShapeUnknown, match=r"config\.json cannot be read"):
        read_shape(tmp_path)


@pytest.mark.parametrize(
    ("values", "positions"),
    [
        ({}, 0),
        ({"max_position_embeddings": 8192}, 8192),
        ({"max_position_embeddings": 8192, "rope_parameters": {"rope_type": "default"}}, 8192),
        (
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {
                    "type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 32768,
                },
            },
            131072,
        ),
    ],
)
def test_the_context_is_what_is_asked_for_and_no_more_than_the_model_has(
    tmp_path: Path, values: dict[str, object], positions: int
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert positions_of(tmp_path) == positions
    assert context_limit(tmp_path, 64) == 64
    assert context_limit(tmp_path, 10**6) == (positions or 10**6)
