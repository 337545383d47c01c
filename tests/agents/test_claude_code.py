"""Claude Code, non-interactive, on the Anthropic messages dialect."""

from pathlib import Path

import pytest

from tests.agents.agent_system import BY_IDS, MAX_CONTEXT, AgentSession, AgentSystem
from tests.agents.engine.scripts import answer, cue
from tests.agents.installed import Installed
from tests.agents.repository import TASK, Repository, repository

pytestmark = pytest.mark.agents

CLAUDE = "@anthropic-ai/claude-code/cli-wrapper.cjs"


def claude(
    installed: Installed,
    session: AgentSession,
    broken: Repository,
    task: str,
    key: str = "ANTHROPIC_AUTH_TOKEN",
    **variables: str,
) -> str:
    """Run the agent to its end; return its last message."""
    return installed.run(
        installed.node(
            CLAUDE,
            *("--print", task, "--model", "policy"),
            *("--allowedTools", "Agent,Bash,Edit,Read,Write"),
        ),
        broken.directory,
        CLAUDE_CONFIG_DIR=str(broken.directory.parent / "claude"),
        ANTHROPIC_BASE_URL=session.base_url.removesuffix("/v1"),
        **{key: session.api_key},
        ANTHROPIC_DEFAULT_HAIKU_MODEL="policy",
        CLAUDE_CODE_MAX_CONTEXT_TOKENS=str(MAX_CONTEXT),
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        **variables,
    )


@pytest.mark.parametrize(
    ("script", "searches"),
    [
        # Claude Code writes members that its model left out into the call it sends back: an answer
        # that the policy did not sample, behind the exact ids of the turn before.
        ("claude-code", "true"),
        # Without its search for tools it sends all of them: 80 KB.
        ("claude-code-wordy", "false"),
    ],
)
def test_a_repaired_repository_is_rewarded(
    system: AgentSystem,
    installed: Installed,
    tmp_path: Path,
    script: str,
    searches: str,
) -> None:
    session, broken = system.open(script), repository(tmp_path / "repository")
    task = cue(script, broken.directory) + TASK

    said = claude(installed, session, broken, task, ENABLE_TOOL_SEARCH=searches)

    assert said.strip() == answer(script)
    after = broken.passes(installed)
    assert after
    assert session.end(float(after)).match_rules == {"root": 1, "extend": 3}


def test_known_by_their_ids_completed_calls_stay_in_the_chain(
    system: AgentSystem, installed: Installed, tmp_path: Path
) -> None:
    session = system.open("claude-code-by-ids", BY_IDS)
    broken = repository(tmp_path / "repository")

    claude(installed, session, broken, cue("claude-code", broken.directory) + TASK)

    assert session.end(1.0).match_rules == {"root": 1, "extend": 3}


def test_its_own_session_id_names_a_session_that_nobody_opened(
    system: AgentSystem, installed: Installed, tmp_path: Path
) -> None:
    session, broken = system.unopened(), repository(tmp_path / "repository")
    task = cue("claude-code-wordy", broken.directory) + TASK

    claude(installed, session, broken, task, key="ANTHROPIC_API_KEY")

    assert session.end(1.0).match_rules == {"root": 1, "extend": 3}


def test_a_sub_agent_is_a_further_root_of_the_session(
    system: AgentSystem, installed: Installed, tmp_path: Path
) -> None:
    session, broken = system.open("claude-code-delegating"), repository(tmp_path / "repository")

    said = claude(
        installed, session, broken, cue("claude-code-delegating", broken.directory) + TASK
    )

    assert said.strip() == answer("claude-code-delegating")
    assert broken.passes(installed)
    assert session.end(1.0).match_rules == {"root": 2, "extend": 4}


def test_a_tool_that_is_searched_for_begins_a_further_root(
    system: AgentSystem, installed: Installed, tmp_path: Path
) -> None:
    session, broken = system.open("claude-code-searching"), repository(tmp_path / "repository")

    said = claude(installed, session, broken, cue("claude-code-searching", broken.directory) + TASK)

    assert said.strip() == answer("claude-code-searching")
    # Tools stand at the beginning of the prompt, so another list is another beginning.
    assert session.end(1.0).match_rules == {"root": 2, "extend": 1}
