"""Model directories that lack something say what."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.inspection.model_directory import (
    foreign_tokenizer,
    incomplete,
    unrenderable,
)
from tests.builders.run_files import NO_TENSORS, model_directory


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a complete model directory."""
    return model_directory(tmp_path / "model")


def test_a_complete_directory_lacks_nothing(model: Path) -> None:
    assert incomplete(model) == ""
    assert unrenderable(model, RendererSettings("qwen3")) == ""


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file_is_named(model: Path, name: str) -> None:
    (model / name).unlink()
    assert incomplete(model) == f"{model} lacks {name}"


def test_parts_of_the_weights_are_looked_for(model: Path) -> None:
    (model / "model.safetensors").unlink()
    parts = {f"layer.{number}": f"part-{number}.safetensors" for number in range(5)}
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    (model / "part-0.safetensors").write_bytes(NO_TENSORS)
    assert incomplete(model) == (
        f"{model} lacks part-1.safetensors, part-2.safetensors, part-3.safetensors and 1 more"
    )


@pytest.mark.parametrize("kept", [0, 5, 30, -1])
def test_weights_that_are_cut_short_are_named(model: Path, kept: int) -> None:
    file = model / "model.safetensors"
    save_file({"a": np.zeros(3), "b": np.zeros(2)}, file)
    assert incomplete(model) == ""
    file.write_bytes(file.read_bytes()[:kept])
    assert incomplete(model) == f"{file} is cut short: it has {file.stat().st_size} bytes"


@pytest.mark.parametrize("content", [b"<!doctype html>" * 9, (4).to_bytes(8, "little") + b"[12]"])
def test_weights_in_another_form_are_named(model: Path, content: bytes) -> None:
    (model / "model.safetensors").write_bytes(content)
    assert incomplete(model) == f"{model / 'model.safetensors'} is no safetensors file"


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_an_index_that_cannot_be_read_is_named(model: Path, text: str) -> None:
    (model / "model.safetensors.index.json").write_text(text)
    assert "model.safetensors.index.json cannot be read" in incomplete(model)


def test_a_pointer_of_git_is_no_file(model: Path) -> None:
    (model / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert incomplete(model).endswith("is a pointer of Git LFS, not the file: run git lfs pull")


def test_a_renderer_that_does_not_fit_is_named_with_the_reason(model: Path) -> None:
    assert "lacks" in unrenderable(model, RendererSettings("glm-4.5"))


def with_tokens(model: Path, rows: int, tokenizer: object, template: str = "") -> Path:
    (model / "chat_template.jinja").unlink(missing_ok=True)
    (model / "config.json").write_text(json.dumps({"vocab_size": rows}))
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return model


WORDS = {"a": 0, "b": 9}
ADDED = [{"id": 12, "content": "<|im_end|>"}]


@pytest.mark.parametrize(
    "tokenizer",
    [
        {"model": {"vocab": WORDS}},
        {"model": {"vocab": [["a", -1.0]] * 10}},
        {"model": {"vocab": WORDS}, "added_tokens": ADDED},
    ],
)
def test_a_tokenizer_whose_ids_the_model_embeds_fits(model: Path, tokenizer: object) -> None:
    assert foreign_tokenizer(with_tokens(model, 13, tokenizer, "<|im_end|>")) == ""


@pytest.mark.parametrize(
    "tokenizer", [{"model": {"vocab": WORDS}}, {"model": {"vocab": [["a", -1.0]] * 10}}]
)
def test_a_vocabulary_larger_than_the_models_is_named(model: Path, tokenizer: object) -> None:
    said = foreign_tokenizer(with_tokens(model, 9, tokenizer))
    assert "tokenizer.json has tokens up to 9" in said
    assert "embeds 9 (vocab_size)" in said


def test_an_added_token_counts_if_the_template_writes_it(model: Path) -> None:
    tokenizer = {"model": {"vocab": WORDS}, "added_tokens": ADDED}
    assert foreign_tokenizer(with_tokens(model, 12, tokenizer)) == ""
    assert "up to 12" in foreign_tokenizer(with_tokens(model, 12, tokenizer, "x<|im_end|>"))


def test_the_vocabulary_of_a_models_text_counts(model: Path) -> None:
    with_tokens(model, 1, {"model": {"vocab": WORDS}})
    (model / "config.json").write_text(json.dumps({"text_config": {"vocab_size": 10}}))
    assert foreign_tokenizer(model) == ""


@pytest.mark.parametrize("content", ["{}", "[]", "{", '{"model": {"vocab": null}}'])
def test_a_tokenizer_of_another_form_is_left_to_its_library(model: Path, content: str) -> None:
    with_tokens(model, 1, {})
    (model / "tokenizer.json").write_text(content)
    assert foreign_tokenizer(model) == ""
