"""Tool loops on the vendors' own clients: openai, anthropic and google-genai."""

from pathlib import Path

import pytest

from tests.agents.agent_system import AgentSystem
from tests.agents.engine.scripts import answer
from tests.agents.installed import Installed

pytestmark = pytest.mark.agents


@pytest.mark.parametrize("how", ["sync", "async", "stream"])
def test_a_tool_loop_on_chat_completions_is_one_chain(
    system: AgentSystem, installed: Installed, tmp_path: Path, how: str
) -> None:
    is_one_chain(system, installed, tmp_path, "openai_chat.py", how)


@pytest.mark.parametrize("how", ["sync", "async", "stream", "previous"])
def test_a_tool_loop_on_responses_is_one_chain(
    system: AgentSystem, installed: Installed, tmp_path: Path, how: str
) -> None:
    is_one_chain(system, installed, tmp_path, "openai_responses.py", how)


@pytest.mark.parametrize("how", ["sync", "async", "stream"])
def test_a_tool_loop_on_anthropic_messages_is_one_chain(
    system: AgentSystem, installed: Installed, tmp_path: Path, how: str
) -> None:
    is_one_chain(system, installed, tmp_path, "anthropic_messages.py", how)


@pytest.mark.parametrize("how", ["sync", "async", "stream"])
def test_a_tool_loop_on_google_content_is_one_chain(
    system: AgentSystem, installed: Installed, tmp_path: Path, how: str
) -> None:
    is_one_chain(system, installed, tmp_path, "google_content.py", how)


def is_one_chain(
    system: AgentSystem, installed: Installed, where: Path, program: str, how: str
) -> None:
    session = system.open(f"{program}-{how}")

    said = installed.run(
        installed.program(program, how),
        where,
        OPENAI_BASE_URL=session.base_url,
        OPENAI_API_KEY=session.api_key,
        ANTHROPIC_BASE_URL=session.base_url.removesuffix("/v1"),
        ANTHROPIC_API_KEY=session.api_key,
        GOOGLE_GEMINI_BASE_URL=session.base_url.removesuffix("/v1"),
        GEMINI_API_KEY=session.api_key,
    )

    assert said.strip() == answer("adding")
    assert session.end(1.0).match_rules == {"root": 1, "extend": 2}
