"""mini-swe-agent repairs a repository; the reward is what the repository's tests say."""

from pathlib import Path

import pytest

from tests.agents.agent_system import AgentSystem
from tests.agents.engine.scripts import cue
from tests.agents.installed import Installed
from tests.agents.repository import TASK, repository

pytestmark = pytest.mark.agents


def test_a_repaired_repository_is_rewarded(
    system: AgentSystem, installed: Installed, tmp_path: Path
) -> None:
    session, broken = system.open("mini-swe-agent"), repository(tmp_path / "repository")
    before = broken.passes(installed)

    installed.run(
        installed.script(
            "mini",
            *("--model", "openai/policy", "--task", cue("mini-swe-agent") + TASK),
            *("--yolo", "--exit-immediately", "--output", str(tmp_path / "run.json")),
        ),
        broken.directory,
        OPENAI_API_BASE=session.base_url,
        OPENAI_API_KEY=session.api_key,
        MSWEA_CONFIGURED="true",
        MSWEA_COST_TRACKING="ignore_errors",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
    )

    after = broken.passes(installed)
    assert (before, after) == (False, True)
    assert session.end(float(after)).match_rules == {"root": 1, "extend": 3}
