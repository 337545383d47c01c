"""Engines that are closed when their test ends."""

from collections.abc import Iterator
from typing import Any

import pytest
from transformers import PreTrainedModel

from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from tests.builders.engines.torch_engine import StartEngine


@pytest.fixture
def start() -> Iterator[StartEngine]:
    """Build an engine from a model; further arguments are its settings."""
    engines: list[TorchEngine] = []

    def build(model: PreTrainedModel, version: int = 0, **settings: Any) -> TorchEngine:
        engines.append(TorchEngine(model, TorchEngineSettings(**settings), version))
        return engines[-1]

    yield build
    for engine in engines:
        engine.close()
    assert [engine.health().failed_callbacks for engine in engines] == [0] * len(engines)
