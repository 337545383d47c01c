"""Fixtures of the properties."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.rendering.renderer import Renderer
from seamlessflow.infra.rendering.settings import RendererSettings


@pytest.fixture(scope="session")
def renderers(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Renderer]:
    """Return Qwen3's renderer on a tiny tokenizer: as the model has it, and with all thinking."""
    directory: Path = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(directory)
    return [
        Renderer.load(directory, RendererSettings("qwen3", thinking_retention=retention))
        for retention in (None, "all")
    ]
