"""vLLM keeps the promises that every engine keeps."""

import pytest

from tests.unit.rollout_worker.engine_contract import EngineContract

pytestmark = pytest.mark.vllm


class TestVllmEngine(EngineContract):
    """With the fixtures `engine` and `weights` of `conftest.py`."""

    structured_output = True
