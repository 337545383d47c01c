"""The command `seamlessflow environments doctor`, with adapters of its own, on all processes."""

import textwrap
from pathlib import Path

import pytest

from tests.builders.tryouts import doctor, facts, grades
from tests.paths import ROOT

GAME = ROOT / "examples" / "own_environment" / "game.py"


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a directory that no other test writes to."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")


def adapter(folder: Path, body: str) -> str:
    """Write an adapter whose episodes run a body; return its file."""
    file = folder / "adapter.py"
    lines = textwrap.indent(textwrap.dedent(body), " " * 8)
    file.write_text(
        "import asyncio\n\n\nclass Environment:\n    def tasks(self):\n"
        '        yield {"id": "first"}\n\n'
        f"    async def run(self, task, session):{lines}"
    )
    return str(file)


def test_the_example_s_episodes_are_told_with_their_words_and_rewards() -> None:
    said = [word for number in range(10) for word in ("--say", f"code {number}")]
    result = doctor(str(GAME), "--settings", '{"size": 4}', "--tasks", "2", "--json", *said)
    seen = facts(result, 0)
    assert seen["tasks"]["count"] == 4
    assert seen["tasks"]["metadata"] == ["game"]
    assert [(episode["turns"], episode["chains"]) for episode in seen["episodes"]] == [(3, 1)] * 2
    assert all(0 <= episode["rewards"]["reward"] <= 1 for episode in seen["episodes"])
    assert set(grades(seen).values()) == {"ok"}


def test_all_that_a_run_would_stumble_over_is_named(tmp_path: Path) -> None:
    file = adapter(
        tmp_path,
        """
        tool = {"type": "function", "function": {"name": "look", "parameters": {
            "type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}}}
        asked = [{"role": "user", "content": "look around"}]
        answer = await session.ask(asked, tools=[tool], user="ann")
        [call] = answer.tool_calls
        assert call.function.arguments == '{"at": 1}', call
        asked = [{"role": "user", "content": "look around, please"}]
        await session.ask(asked, tools=[tool])
        try:
            await session.ask(asked, extra_body={"guided_json": {}})
        except Exception as error:
            assert "guided_json" in str(error)
        await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True)
        return {"reward": 0.5, "metrics": {"looks": 2}}
        """,
    )
    result = doctor(file, "--json")
    seen = facts(result, 1)
    [episode] = seen["episodes"]
    assert (episode["rewards"], episode["returned"]) == ({"reward": 0.5}, ["metrics"])
    assert episode["left"]["programs"] == ["sleep 1000"]
    assert [(at["turn"], at["message"]) for at in episode["breaks"]] == [(2, 1)]
    graded = grades(seen)
    assert graded["refused"] == "failed"
    assert graded["parameters"] == graded["history"] == "warning"
    assert graded["tools"] == graded["leftovers"] == "ok"


def test_an_episode_that_fails_is_a_fault_of_the_environment(tmp_path: Path) -> None:
    result = doctor(adapter(tmp_path, "\nreturn {'reward': 'much'}\n"), "--json")
    [episode] = facts(result, 1)["episodes"]
    assert (episode["status"], episode["cause"]) == ("aborted", "environment")


def test_an_environment_that_cannot_be_made_ends_with_its_words(tmp_path: Path) -> None:
    result = doctor(str(GAME), "--settings", '{"sizee": 4}')
    assert "sizee" in str(result.exception)
