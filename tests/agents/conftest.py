"""The system that all agents of this run share, and the environment they come from."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from seamlessflow.infra.settings import KafkaSettings
from tests.agents.agent_system import AgentSystem, agent_system
from tests.agents.installed import Installed


@pytest.fixture(scope="session")
def system(
    broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentSystem]:
    with agent_system(broker, tmp_path_factory.mktemp("agent_system")) as made:
        yield made


@pytest.fixture(scope="session")
def installed() -> Installed:
    """Return the agents' environment; fail, never skip, if it is missing."""
    named = os.environ.get("SEAMLESSFLOW_AGENTS_VENV")
    assert named, "run scripts/test-agents: it makes the agents' environment and names it"
    return Installed(Path(named))
