"""The systems that all packages share, and the table of what was run."""

from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import pytest

from seamlessflow.infra.settings import KafkaSettings
from tests.agents.agent_system import AgentSystem, agent_system
from tests.e2e.running_system import RunningSystem, running_system
from tests.environments.checks import HEAD, Row

FOLDER = Path(__file__).parent


ROWS = pytest.StashKey[list[Row]]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin an empty table."""
    config.stash[ROWS] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.environments)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table."""
    rows = [astuple(row) for row in (HEAD, *config.stash[ROWS])]
    if len(rows) == 1:
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line("  ".join(cells).rstrip())


@pytest.fixture
def rows(pytestconfig: pytest.Config) -> list[Row]:
    """Return the table, for a test to add to."""
    return pytestconfig.stash[ROWS]


@pytest.fixture(scope="session")
def acting(
    broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentSystem]:
    """Yield a system whose policy answers from scripts, with calls of tools."""
    with agent_system(broker, tmp_path_factory.mktemp("acting")) as made:
        yield made


@pytest.fixture(scope="session")
def sampling(
    broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningSystem]:
    """Yield a system whose policy is the tiny model on the torch engine."""
    with running_system(broker, tmp_path_factory.mktemp("sampling")) as made:
        made.publish_weights(0, seed=0)
        made.start_gateway()
        made.start("manager", "seamlessflow.consumers.trajectories")
        made.start_worker("w0")
        made.give_role("w0", 0)
        made.await_ready()
        yield made
