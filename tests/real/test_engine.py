"""The contract of engines, by the torch engine with a real model, and its answers when batched."""

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from seamlessflow.producers.rollout.engine.contract import Engine
from seamlessflow.producers.rollout.torch_engine.engine import TorchEngine, TorchEngineSettings
from tests.builders.models import plain_rows
from tests.contracts.engine import Distribution, EngineContract

pytestmark = pytest.mark.real
CONTEXT = 256


@pytest.fixture(scope="module")
def plain(smollm2: Path) -> PreTrainedModel:
    """Return the model as transformers loads it."""
    loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        smollm2, dtype=torch.float32, local_files_only=True
    )
    return loaded


class TestTorchEngineOfARealModel(EngineContract):
    def tolerance(self, temperature: float) -> float:
        """Return what float32 makes of logits around 30, which a low temperature makes larger.

        Packed and plain products differ by 1.1e-4 at most, and each by 9e-5 from float64.
        """
        return 2e-4 / min(1.0, temperature)

    @pytest.fixture
    def engine(self, plain: PreTrainedModel) -> Iterator[Engine]:
        engine = TorchEngine(
            copy.deepcopy(plain), TorchEngineSettings(max_length=CONTEXT), version=3
        )
        yield engine
        engine.close()

    @pytest.fixture
    def weights(self, smollm2: Path) -> Path:
        return smollm2

    @pytest.fixture
    def distribution(self, plain: PreTrainedModel) -> Distribution:
        return partial(plain_rows, plain)
