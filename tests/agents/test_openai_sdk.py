"""The openai client's own loops."""

from pathlib import Path

import pytest

from tests.agents.installed import Installed
from tests.agents.scenes import answer
from tests.agents.theatre import Theatre

pytestmark = pytest.mark.agents


@pytest.mark.parametrize("how", ["sync", "async", "stream"])
def test_a_tool_loop_on_chat_completions_is_one_chain(
    system: Theatre, installed: Installed, tmp_path: Path, how: str
) -> None:
    session = system.open(f"openai-chat-{how}")

    said = installed.run(
        installed.program("openai_chat.py", how),
        tmp_path,
        OPENAI_BASE_URL=session.base_url,
        OPENAI_API_KEY=session.api_key,
    )

    assert said.strip() == answer("adding")
    assert session.end(1.0).match_rules == {"root": 1, "extend": 2}
