"""The system with the acting engine, for the tests of a file."""

from collections.abc import Iterator

import pytest

from infra.settings import KafkaSettings
from tests.agents.theatre import Theatre, theatre


@pytest.fixture(scope="module")
def system(broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    with theatre(broker, tmp_path_factory.mktemp("theatre")) as made:
        yield made
