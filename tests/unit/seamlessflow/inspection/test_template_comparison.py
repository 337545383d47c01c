"""Prompts of a renderer against those that the model's own template makes."""

import json
from pathlib import Path

import pytest

from seamlessflow.infra.rendering.model_template.discovery import found_for
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import CHAT_TEMPLATE, RendererSettings
from seamlessflow.inspection.template_comparison import (
    first_difference,
    template_difference,
    token_difference,
    transformers_tokenizer,
)
from tests.builders import model_directories
from tests.builders.model_directories import FAMILIES
from tests.builders.run_files import model_directory


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model directory whose template writes what the renderer qwen3 writes."""
    directory = model_directory(tmp_path / "model")
    (directory / "config.json").write_text('{"model_type": "qwen3"}')
    return directory


def test_the_prompts_of_the_models_family_are_those_of_its_template(model: Path) -> None:
    renderer = Renderer.load(model, RendererSettings("qwen3"))
    assert template_difference(transformers_tokenizer(model), renderer) == ""


@pytest.mark.parametrize("family", FAMILIES)
def test_the_prompts_of_a_models_own_template_are_the_same_here(
    tmp_path: Path, family: str
) -> None:
    directory = model_directories.model_directory(tmp_path, FAMILIES[family])
    (directory / "config.json").write_text('{"model_type": "llama"}')
    for settings in (RendererSettings(CHAT_TEMPLATE), found_for(directory)):
        assert (
            template_difference(
                transformers_tokenizer(directory), Renderer.load(directory, settings)
            )
            == ""
        )


@pytest.mark.parametrize("format", ["%d %b %Y", "%Y-%m-%d", "%B %-d, %Y", "%A"])
def test_a_date_is_no_difference(model: Path, format: str) -> None:
    template = model / "chat_template.jinja"
    template.write_text(f"\n{{{{ strftime_now('{format}') }}}}{template.read_text()}")
    renderer = Renderer.load(model, RendererSettings(CHAT_TEMPLATE))
    assert template_difference(transformers_tokenizer(model), renderer) == ""


def test_options_are_those_of_the_template(model: Path) -> None:
    template = model / "chat_template.jinja"
    template.write_text(f"{{{{ 'fast' if fast else 'slow' }}}}{template.read_text()}")
    for options in ({"fast": True}, {"fast": False}):
        renderer = Renderer.load(model, RendererSettings(CHAT_TEMPLATE, None, options))
        assert template_difference(transformers_tokenizer(model), renderer) == ""


def test_calls_that_are_spelt_otherwise_are_a_difference(model: Path) -> None:
    template = model / "chat_template.jinja"
    template.write_text(template.read_text().replace("<tool_call>", "<tool-call>"))
    renderer = Renderer.load(model, RendererSettings("qwen3"))
    assert "<tool-call>" in template_difference(transformers_tokenizer(model), renderer)


def test_the_first_difference_is_shown(model: Path) -> None:
    template = model / "chat_template.jinja"
    template.write_text(template.read_text().replace("<|im_start|>assistant", "<|im_start|>model"))
    renderer = Renderer.load(model, RendererSettings("qwen3"))
    assert "the renderer writes" in template_difference(transformers_tokenizer(model), renderer)


def test_a_model_without_a_template_cannot_be_compared(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    renderer = Renderer.load(model, RendererSettings("qwen3"))
    with pytest.raises(ValueError, match="chat_template"):
        template_difference(transformers_tokenizer(model), renderer)


def test_a_tokenizer_class_that_reads_otherwise_than_the_file_is_a_difference(
    model: Path,
) -> None:
    renderer = Renderer.load(model, RendererSettings("qwen3"))
    assert token_difference(transformers_tokenizer(model), renderer) == ""

    config = model / "tokenizer_config.json"
    settings = json.loads(config.read_text())
    config.write_text(json.dumps({**settings, "tokenizer_class": "Qwen2Tokenizer"}))

    difference = token_difference(transformers_tokenizer(model), renderer)
    assert "Qwen2Tokenizer of transformers" in difference


def test_a_difference_is_shown_with_the_text_around_it() -> None:
    assert first_difference("abc", "abd") == (
        "at character 2 the renderer writes 'abc', the model's template 'abd'"
    )
