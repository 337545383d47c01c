"""Both engines keep the same promises."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from producers.rollout.engine.contract import Engine
from producers.rollout.scripted_engine.engine import ScriptedEngine
from producers.rollout.scripted_engine.script import Script
from producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from tests.builders.models import model, saved
from tests.builders.rollout.generation import as_bytes
from tests.contracts.engine import EngineContract

CONTEXT = 256
LENGTH = 150


class TestScriptedEngine(EngineContract):
    @pytest.fixture(params=[None, 20_000.0], ids=["at once", "at a speed"])
    def engine(self, request: pytest.FixtureRequest) -> Iterator[Engine]:
        script = Script(as_bytes([11, 12, 13]), LENGTH, request.param)
        engine = ScriptedEngine(script, version=3, max_length=CONTEXT)
        yield engine
        engine.close()

    @pytest.fixture
    def weights(self, tmp_path: Path) -> Path:
        return tmp_path


class TestTorchEngine(EngineContract):
    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        torch.set_num_threads(1)
        engine = TorchEngine(model(), TorchEngineSettings(max_length=CONTEXT), version=3)
        yield engine
        engine.close()

    @pytest.fixture
    def weights(self, tmp_path: Path) -> Path:
        return saved(model(seed=1), tmp_path)
