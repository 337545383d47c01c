"""Codex, non-interactive, on the Responses dialect."""

from pathlib import Path

import pytest

from tests.agents.agent_system import MAX_CONTEXT, AgentSession, AgentSystem
from tests.agents.cutting import first_answer_cut
from tests.agents.engine.scripts import answer, cue
from tests.agents.installed import Installed
from tests.agents.repository import TASK, Repository, repository

pytestmark = pytest.mark.agents

CODEX = "@openai/codex/bin/codex.js"
CONFIG = """
model = "policy"
model_provider = "seamlessflow"
model_context_window = {context}
check_for_update_on_startup = false

[model_providers.seamlessflow]
name = "SeamlessFlow"
base_url = "{base_url}"
env_key = "SEAMLESSFLOW_KEY"
wire_api = "responses"

[analytics]
enabled = false

[feedback]
enabled = false
"""


def codex(installed: Installed, session: AgentSession, broken: Repository, task: str) -> str:
    """Run the agent to its end; return its last message."""
    home = broken.directory.parent / "codex"
    home.mkdir()
    (home / "config.toml").write_text(CONFIG.format(context=MAX_CONTEXT, base_url=session.base_url))
    return installed.run(
        installed.node(CODEX, "exec", "--dangerously-bypass-approvals-and-sandbox", task),
        broken.directory,
        CODEX_HOME=str(home),
        SEAMLESSFLOW_KEY=session.api_key,
    )


def test_a_repaired_repository_is_rewarded(
    system: AgentSystem, installed: Installed, tmp_path: Path
) -> None:
    session, broken = system.open("codex"), repository(tmp_path / "repository")

    said = codex(installed, session, broken, cue("codex") + TASK)

    assert said.strip() == answer("codex")
    after = broken.passes(installed)
    assert after
    assert session.end(float(after)).match_rules == {"root": 1, "extend": 3}


def test_its_own_session_id_names_a_session_that_nobody_opened(
    system: AgentSystem, installed: Installed, tmp_path: Path
) -> None:
    session, broken = system.unopened(), repository(tmp_path / "repository")

    codex(installed, session, broken, cue("codex") + TASK)

    assert session.end(1.0).match_rules == {"root": 1, "extend": 3}


def test_a_sub_agent_is_a_further_root_of_the_session(
    system: AgentSystem, installed: Installed, tmp_path: Path
) -> None:
    session, broken = system.open("codex-delegating"), repository(tmp_path / "repository")

    said = codex(installed, session, broken, cue("codex-delegating") + TASK)

    assert said.strip() == answer("codex-delegating")
    assert broken.passes(installed)
    assert session.end(1.0).match_rules == {"root": 2, "extend": 5}


def test_an_answer_that_breaks_off_is_given_again_and_trained_once(
    system: AgentSystem, installed: Installed, tmp_path: Path
) -> None:
    session, broken = system.open("codex-broken"), repository(tmp_path / "repository")
    with first_answer_cut(session.base_url) as base_url:
        session.base_url = base_url

        said = codex(installed, session, broken, cue("codex") + TASK)

    assert said.strip() == answer("codex")
    assert session.end(1.0).match_rules == {"root": 1, "extend": 3}
