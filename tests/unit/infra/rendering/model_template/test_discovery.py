"""The renderer that a model directory gets if its configuration names none."""

from pathlib import Path

import pytest

from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.rendering.model_template.discovery import found_for
from seamlessflow.infra.rendering.model_template.files import CONFIG_FILE, TEMPLATE_FILE
from seamlessflow.infra.rendering.settings import RendererError, RendererSettings


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    make_tokenizer(tmp_path)
    return tmp_path


def test_the_family_that_writes_the_models_prompts_is_found(directory: Path) -> None:
    assert found_for(directory) == RendererSettings("qwen3")


def test_without_a_template_the_missing_file_is_named(directory: Path) -> None:
    (directory / TEMPLATE_FILE).unlink()

    with pytest.raises(RendererError, match=rf"{TEMPLATE_FILE}.*{CONFIG_FILE}.*policy\.renderer"):
        found_for(directory)


def test_a_template_that_is_none_is_an_error(directory: Path) -> None:
    (directory / TEMPLATE_FILE).write_text("{% if %}")

    with pytest.raises(RendererError, match="chat template: Expected an expression"):
        found_for(directory)


def test_without_a_tokenizer_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(RendererError, match=r"tokenizer\.json is missing"):
        found_for(tmp_path)
