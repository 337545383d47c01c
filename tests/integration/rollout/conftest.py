"""Fixtures of the rollout worker's tests: a tokenizer, and topics with workers on them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from seamlessflow.demo.tokenizer import make_tokenizer
from seamlessflow.infra.settings import KafkaSettings
from tests.builders.rollout.rollout_system import RolloutSystem, rollout_system


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(directory)
    return directory


@pytest.fixture(scope="module")
def system(broker: KafkaSettings, tokenizer: Path) -> Iterator[RolloutSystem]:
    with rollout_system(broker, tokenizer) as made:
        yield made
