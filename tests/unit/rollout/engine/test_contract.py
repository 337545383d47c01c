"""All engines of this process keep the same promises."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from seamlessflow.infra.device_model.rates import Rates
from seamlessflow.infra.device_model.settings import LengthsSection
from seamlessflow.producers.rollout.clock_engine.answers import AnswerLengths, Answers
from seamlessflow.producers.rollout.clock_engine.engine import ClockEngine, ClockEngineSettings
from seamlessflow.producers.rollout.engine.contract import Engine
from seamlessflow.producers.rollout.engine.made_up import FIRST_OTHER, LOGPROB
from seamlessflow.producers.rollout.scripted_engine import Script, ScriptedEngine
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from seamlessflow.trainer.backends.adapter.whole_model import merge
from tests.builders.engines.adapters import adapter
from tests.builders.models import model, plain_rows, saved
from tests.builders.rollout.generation import as_bytes
from tests.contracts.engine import Distribution, EngineContract, Rows

CONTEXT = 256
LENGTH = 150
ENOUGH = 100
"""Tokens of the made-up vocabulary beyond which the probabilities add up to nothing."""


def made_up_rows(tokens: list[int], start: int) -> Rows:
    """Return the made-up distribution beside each token: the others follow in id order."""
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
        return made_up_rows


class TestClockEngine(EngineContract):
    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        answers = Answers(as_bytes([11, 12, 13]), AnswerLengths(LengthsSection(turn_tokens=150)))
        rates = Rates(row_s=1e-5, prompt_s=1e-6, load_s=1e-3, sleep_s=1e-3, wake_s=1e-3)
        settings = ClockEngineSettings(rates=rates, report_s=1e-3, max_length=CONTEXT)
        engine = ClockEngine(settings, answers, version=3)
        yield engine
        engine.close()

    @pytest.fixture
    def weights(self, tmp_path: Path) -> Path:
        return tmp_path

    @pytest.fixture
    def distribution(self) -> Distribution:
        return made_up_rows


class TestTorchEngine(EngineContract):
    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        engine = TorchEngine(model(), TorchEngineSettings(max_length=CONTEXT), version=3)
        yield engine
        engine.close()

    @pytest.fixture
    def weights(self, tmp_path: Path) -> Path:
        return saved(model(seed=1), tmp_path)

    @pytest.fixture
    def distribution(self) -> Distribution:
        return partial(plain_rows, model())


class TestTorchEngineWithAdapter(EngineContract):
    @pytest.fixture
    def base(self, tmp_path: Path) -> Path:
        return saved(model(), tmp_path / "base")

    @pytest.fixture
    def engine(self, base: Path, tmp_path: Path) -> Iterator[Engine]:
        settings = TorchEngineSettings(max_length=CONTEXT)
        first = adapter(base, tmp_path / "first")
        engine = TorchEngine.from_directory(first, settings, version=3)
        yield engine
        engine.close()

    @pytest.fixture
    def weights(self, base: Path, tmp_path: Path) -> Path:
        return adapter(base, tmp_path / "second", seed=1)

    @pytest.fixture
    def distribution(self, base: Path, engine: Engine, tmp_path: Path) -> Distribution:
        merge(base, tmp_path / "first", tmp_path / "merged")
        return partial(plain_rows, AutoModelForCausalLM.from_pretrained(tmp_path / "merged"))
