"""mini-swe-agent repairs a repository; the reward is what the repository's tests say."""

import subprocess
from pathlib import Path

import pytest

from tests.agents.installed import Installed
from tests.agents.scenes import cue
from tests.agents.theatre import Theatre

pytestmark = pytest.mark.agents

CALC = "def add(a, b):\n    return a - b\n"
TESTS = "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"


def test_a_repaired_repository_is_rewarded(
    system: Theatre, installed: Installed, tmp_path: Path
) -> None:
    session = system.open("mini-swe-agent")
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "calc.py").write_text(CALC)
    (repository / "test_calc.py").write_text(TESTS)
    task = f"{cue('mini-swe-agent')} The test of calc.py fails. Repair calc.py."
    before = passes(installed, repository)

    installed.run(
        installed.script(
            "mini",
            *("--model", "openai/policy", "--task", task, "--yolo", "--exit-immediately"),
            *("--config", "mini.yaml", "--output", str(tmp_path / "run.json")),
        ),
        repository,
        OPENAI_API_BASE=session.base_url,
        OPENAI_API_KEY=session.api_key,
        MSWEA_CONFIGURED="true",
        MSWEA_COST_TRACKING="ignore_errors",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
    )

    after = passes(installed, repository)
    assert (before, after) == (False, True)
    trajectory = session.end(float(after))
    assert trajectory.match_rules == {"root": 1, "extend": 3}


def passes(installed: Installed, repository: Path) -> bool:
    """Whether the repository's own tests pass."""
    command = installed.script("pytest", "-q", "-p", "no:cacheprovider")
    return subprocess.run(command, cwd=repository, capture_output=True).returncode == 0
