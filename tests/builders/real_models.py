"""Directories of small real models, which are made first if they are not there."""

from pathlib import Path

import pytest

from scripts.real_model import MODELS, ModelUnmade, directory_of
from seamlessflow.infra.broker.jars import default_cache

SMOLLM2 = "smollm2"
"""SmolLM2-135M-Instruct: its template writes no tools."""
CODER = "qwen2.5-coder"
"""Qwen2.5-Coder-0.5B-Instruct: its template writes tools, and marks calls with tokens."""


def real_model(name: str) -> Path:
    """Return the directory of a model, which is made first if it is not there.

    Fails the test, never skips it, if it cannot be made.
    """
    try:
        return directory_of(MODELS[name], default_cache())
    except ModelUnmade as error:
        pytest.fail(f"scripts/real-model {name}: {error}")
