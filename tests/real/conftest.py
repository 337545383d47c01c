"""Real models and tokenizers: tests of this folder belong to `scripts/test-real` alone."""

from pathlib import Path

import pytest

from seamlessflow.infra.rendering.model_template.discovery import found_for
from seamlessflow.infra.rendering.renderer import Renderer
from tests.builders.real_models import CODER, SMOLLM2, real_model


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Return the directory of a model whose template writes no tools."""
    return real_model(SMOLLM2)


@pytest.fixture(scope="session")
def coder() -> Path:
    """Return the directory of a model whose template writes tools."""
    return real_model(CODER)


@pytest.fixture(scope="session", params=[SMOLLM2, CODER])
def model(request: pytest.FixtureRequest) -> Path:
    """Return the directory of each model in turn."""
    return real_model(request.param)


@pytest.fixture(scope="session")
def renderer(model: Path) -> Renderer:
    """Return the renderer that is found for each model in turn."""
    return Renderer.load(model, found_for(model))


@pytest.fixture(scope="session")
def calling(coder: Path) -> Renderer:
    """Return the renderer of the model that calls tools."""
    return Renderer.load(coder, found_for(coder))
