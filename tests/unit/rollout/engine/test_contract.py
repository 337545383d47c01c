"""Both engines keep the same promises."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from producers.rollout.engine.contract import Engine
from producers.rollout.scripted_engine.engine import ScriptedEngine
from producers.rollout.scripted_engine.script import FIRST_OTHER, LOGPROB, Script
from producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from tests.builders.models import model, plain_rows, saved
from tests.builders.rollout.generation import as_bytes
from tests.contracts.engine import Distribution, EngineContract, Rows

CONTEXT = 256
LENGTH = 150
ENOUGH = 100
"""Tokens of the scripted vocabulary beyond which the probabilities add up to nothing."""


def scripted_rows(tokens: list[int], start: int) -> Rows:
    """Return the scripted distribution beside each token: the others follow in id order."""
    rows = []
    for token in tokens[start:]:
        others = FIRST_OTHER - np.arange(ENOUGH - 1, dtype=np.float64)
        rows.append(np.insert(others, token, LOGPROB))
    return np.array(rows)


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

    @pytest.fixture
    def distribution(self) -> Distribution:
        return scripted_rows


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

    @pytest.fixture
    def distribution(self) -> Distribution:
        return partial(plain_rows, model())
