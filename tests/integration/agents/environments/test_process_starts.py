"""Starts of an environment's processes."""

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from seamlessflow.producers.agents.environments.agent import EnvironmentAgent
from seamlessflow.producers.agents.environments.child import (
    EnvironmentGone,
    EnvironmentUnusable,
    EpisodeFailed,
)
from seamlessflow.producers.agents.environments.listing import write_tasks
from seamlessflow.producers.agents.environments.venvs import environment_spec
from seamlessflow.producers.agents.settings import AgentsSection
from tests.integration.agents.environments.playing import LIMIT_S, SESSION, Start, only, results

SLOW_TO_WARM = """
        async def warm_up(self):
            with open(folder / "starts", "a") as starts:
                print(os.environ["TMPDIR"], file=starts)
            while not (folder / "warm").exists():
                await asyncio.sleep(0.01)

        async def run(self, task, session):
            if task:
                os._exit(9)
            return os.environ["TMPDIR"]
        """


@pytest.mark.parametrize("closed", [False, True])
def test_a_process_whose_episode_is_stopped_before_it_is_warm_is_kept_or_ended(
    adapter: Start, tmp_path: Path, closed: bool
) -> None:
    starts, warm = tmp_path / "starts", tmp_path / "warm"
    spec = adapter(SLOW_TO_WARM.replace("folder", f"__import__('pathlib').Path({str(tmp_path)!r})"))

    async def played() -> object:
        agent = EnvironmentAgent(spec, 1, 64, LIMIT_S)
        warm.touch()
        await agent.begin()
        with pytest.raises(EnvironmentGone):
            await agent.run(b'{"ends": true}', SESSION)
        warm.unlink()
        stopped = asyncio.create_task(agent.run(b"{}", SESSION))
        while len(starts.read_text().splitlines()) < 2:
            await asyncio.sleep(0.01)
        stopped.cancel()
        await asyncio.wait({stopped})
        result = None
        if not closed:
            warm.touch()
            result = await agent.run(b"{}", SESSION)
        await agent.close()
        return result

    result = asyncio.run(asyncio.wait_for(played(), LIMIT_S))
    folders = starts.read_text().splitlines()
    assert len(folders) == 2
    assert result == (None if closed else folders[1])
    assert [folder for folder in folders if Path(folder).exists()] == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "def __init__(self, level): pass",
            "missing a required argument: 'level'; settings are none",
        ),
        ("import a_package_that_is_not_there", "No module named 'a_package_that_is_not_there'"),
        ("def __init__(self): sys.exit('no licence')", "no licence"),
        ("def __init__(self): os._exit(3)", "it ended with status 3"),
        ("async def warm_up(self): raise OSError('no index')", "no index"),
    ],
)
def test_an_environment_that_cannot_be_made_is_refused_with_its_own_words(
    adapter: Start, body: str, words: str
) -> None:
    with pytest.raises(EnvironmentUnusable, match=words):
        only(adapter("\n" + body))


def test_the_wait_for_a_first_process_has_a_deadline(adapter: Start) -> None:
    spec = adapter("\nasync def warm_up(self): await asyncio.sleep(600)\n")

    async def begin() -> None:
        await EnvironmentAgent(spec, 1, 1, 0.5).begin()

    with pytest.raises(EnvironmentUnusable, match=r"mine was not ready within 0\.5 s"):
        asyncio.run(begin())


def test_settings_of_a_list_that_cannot_be_made_fail_their_own_episodes(
    adapter: Start, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    spec = adapter(
        f"""
        def __init__(self, part="train"):
            if part == "gone":
                raise ValueError("there is no such part")

        def run(self, task, session):
            return 1.0

        def close(self):
            open({str(closed)!r}, "w").close()
        """
    )
    good, bad = asyncio.run(results(spec, b"{}", b'{"environment_settings": {"part": "gone"}}'))
    assert good == 1.0
    assert isinstance(bad, EpisodeFailed) and "there is no such part" in str(bad)
    assert closed.exists()


def test_a_python_of_ones_own_is_asked_for_its_versions(tmp_path: Path) -> None:
    """This Python has no reasoning-gym."""
    agents = AgentsSection(environment="reasoning_gym", environment_python=Path(sys.executable))
    spec = environment_spec(agents, os.environ, tmp_path / "environment.log")
    assert spec.note.startswith(f"{sys.executable} has no reasoning-gym, and the adapter is made")
    listing = write_tasks(replace(spec, settings={"datasets": ["gcd"]}), tmp_path / "t", print)
    with pytest.raises(EnvironmentUnusable, match=r"named 'reasoning_gym' \(.*has no reasoning"):
        asyncio.run(listing)
    other = agents.model_copy(update={"environment_python": tmp_path / "none"})
    with pytest.raises(EnvironmentUnusable, match="none"):
        environment_spec(other, os.environ, tmp_path / "environment.log")


def test_what_a_package_loads_is_loaded_once_for_all_episodes(adapter: Start) -> None:
    spec = adapter(
        """
        loaded = []

        def warm_up(self):
            time.sleep(0.2)  # as weights that are read
            self.loaded.append(bytearray(50_000_000))

        def run(self, task, session):
            return len(self.loaded)
        """
    )
    assert asyncio.run(results(spec, *[b"{}"] * 8)) == [1] * 8
