"""Agents built on libraries that run the tool loop themselves."""

from pathlib import Path

import pytest

from tests.agents.agent_system import AgentSystem
from tests.agents.engine.scripts import answer
from tests.agents.installed import Installed

pytestmark = pytest.mark.agents


@pytest.mark.parametrize("how", ["run", "stream"])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_openai_agents_is_one_chain(
    system: AgentSystem, installed: Installed, tmp_path: Path, api: str, how: str
) -> None:
    session = system.open(f"openai-agents-{api}-{how}")

    said = installed.run(
        installed.program("openai_agents.py", api, how),
        tmp_path,
        OPENAI_BASE_URL=session.base_url,
        OPENAI_API_KEY=session.api_key,
        OPENAI_AGENTS_DISABLE_TRACING="1",
    )

    assert said.strip() == answer("adding")
    assert session.end(1.0).match_rules == {"root": 1, "extend": 2}


@pytest.mark.parametrize("how", ["run", "stream"])
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
def test_pydantic_ai_is_one_chain(
    system: AgentSystem, installed: Installed, tmp_path: Path, api: str, how: str
) -> None:
    session = system.open(f"pydantic-ai-{api}-{how}")

    said = installed.run(
        installed.program("pydantic_agent.py", api, how),
        tmp_path,
        OPENAI_BASE_URL=session.base_url,
        OPENAI_API_KEY=session.api_key,
        ANTHROPIC_BASE_URL=session.base_url.removesuffix("/v1"),
        ANTHROPIC_API_KEY=session.api_key,
    )

    assert said.strip() == answer("adding")
    assert session.end(1.0).match_rules == {"root": 1, "extend": 2}
