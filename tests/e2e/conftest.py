"""The system with the acting engine, for the tests of a file."""

from collections.abc import Iterator

import pytest

from seamlessflow.infra.settings import KafkaSettings
from tests.agents.agent_system import AgentSystem, agent_system


@pytest.fixture(scope="module")
def system(
    broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentSystem]:
    with agent_system(broker, tmp_path_factory.mktemp("agent_system")) as made:
        yield made
