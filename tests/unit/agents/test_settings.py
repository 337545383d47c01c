import pytest
from pydantic import ValidationError

from seamlessflow.producers.agents.settings import AgentsSettings


def test_an_agent_is_a_callable_or_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_AGENTS__COMMAND", '["my-agent", "--fast"]')
    assert AgentsSettings().agents.command == ("my-agent", "--fast")
    monkeypatch.setenv("SEAMLESSFLOW_AGENTS__CALLABLE", "my.agent:run")
    with pytest.raises(ValidationError, match="exactly one"):
        AgentsSettings()


def test_no_agent_at_all_is_refused() -> None:
    with pytest.raises(ValidationError, match="exactly one"):
        AgentsSettings()


def test_the_admin_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_AGENTS__CALLABLE", "my.agent:run")
    monkeypatch.setenv("SEAMLESSFLOW_AGENTS__ADMIN_KEY", "hidden-key")
    assert "hidden-key" not in repr(AgentsSettings())


def test_an_admin_key_with_the_line_feed_of_its_file_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEAMLESSFLOW_AGENTS__CALLABLE", "my.agent:run")
    monkeypatch.setenv("SEAMLESSFLOW_AGENTS__ADMIN_KEY", "key\n")
    with pytest.raises(ValidationError, match="has the line feed of that file at its end"):
        AgentsSettings()
