"""Tasks with tools of mini-swe-agent, Inspect and NeMo Gym in real sessions."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agent_system import AgentSystem, same_tokens
from tests.agents.engine.scripts import cue
from tests.agents.repository import BROKEN, TESTS
from tests.environments.checks import SCRIPTS, Row, one_chain, row
from tests.environments.playing import PROGRAMS, Package, Played, installed
from tests.environments.resources_server import ROW, resources_server


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    directory = tmp_path / "repository"
    directory.mkdir()
    (directory / "calc.py").write_text(BROKEN)
    (directory / "test_calc.py").write_text(TESTS)
    return directory


def played(acting: AgentSystem, package: Package, task: dict[str, Any]) -> Played:
    """Play a task; check its tokens on the log against those that the engine sampled."""
    package.begin()
    before = len(acting.sampled(0))
    episode = package.play(task)
    same_tokens(episode.trajectory, acting.sampled(before))
    assert episode.chains == 1
    return episode


def test_a_repair_has_its_tokens_on_the_log_in_a_chain(
    acting: AgentSystem, repository: Path, tmp_path: Path, rows: list[Row]
) -> None:
    test = "python -m pytest -q -p no:cacheprovider"
    issue = f"{cue('mini-swe-agent')}The test of calc.py fails."
    task = {"id": "sum", "repository": str(repository), "issue": issue, "test": test}
    settings = {"prefixes": [sys.prefix, sys.base_prefix]}
    with installed("mini_swe_agent", settings, acting.running, tmp_path) as package:
        episode = played(acting, package, task)
        one_chain(episode)
        assert episode.result["reward"] == 1.0
        rows.append(row(package, "a repair in the sandbox", SCRIPTS, episode))


def test_a_sample_of_inspect_has_its_tokens_on_the_log_in_a_chain(
    acting: AgentSystem, tmp_path: Path, rows: list[Row]
) -> None:
    settings = {
        "task": f"{PROGRAMS / 'inspect_sums.py'}@sums",
        "arguments": {"begun": f"{cue('summing')}Use the tool."},
        "reward": "match",
    }
    with installed("inspect_ai", settings, acting.running, tmp_path) as package:
        task, _ = package.tasks(tmp_path)
        episode = played(acting, package, task)
        one_chain(episode)
        assert episode.result["reward"] == 1.0
        rows.append(row(package, "a sample with a tool", SCRIPTS, episode))


def test_a_row_of_nemo_gym_has_its_tokens_on_the_log_in_a_chain(
    acting: AgentSystem, tmp_path: Path, rows: list[Row]
) -> None:
    asked = {**ROW["responses_create_params"], "input": f"{cue('incrementing')}Add three."}
    task = {"id": "counter", "row": {**ROW, "responses_create_params": asked}}
    with (
        resources_server() as server,
        installed(
            "nemo_gym", {"server": server.url, "data": ""}, acting.running, tmp_path
        ) as package,
    ):
        episode = played(acting, package, task)
        assert episode.result["reward"] == 1.0
        assert len(episode.sampled) == 2
        rows.append(row(package, "a server written from its routes", SCRIPTS, episode))
