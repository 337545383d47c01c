"""vLLM keeps the promises that every engine keeps."""

import pytest

from tests.contracts.engine import EngineContract

pytestmark = pytest.mark.vllm


class TestVllmEngine(EngineContract):
    """The contract, with the fixtures `engine` and `weights` of `conftest.py`."""

    structured_output = True
    whole_vocabulary = False
    loads_asleep = False
