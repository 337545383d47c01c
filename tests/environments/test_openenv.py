"""OpenEnv: episodes at a server of the installed package, in real sessions."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from seamlessflow.infra.network.addresses import free_port
from seamlessflow.producers.agents.environments.child import EnvironmentUnusable, EpisodeFailed
from seamlessflow.producers.agents.environments.known import KNOWN
from seamlessflow.producers.agents.environments.venvs import directory
from tests import http
from tests.agents.agent_system import AgentSystem, same_tokens
from tests.agents.engine.scripts import cue
from tests.e2e.running_system import RunningSystem
from tests.environments.checks import SCRIPTS, TINY, Row, one_chain, row
from tests.environments.playing import PROGRAMS, Package, installed
from tests.waiting import until

PYTHON = directory(KNOWN["openenv"]) / "bin" / "python"
STARTS_S = 120.0
"""Longest start of a server: it imports a web interface."""


class Server:
    """A server of a world that counts."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Start it on its port."""
        command = [str(PYTHON), str(PROGRAMS / "counting_server.py"), str(self.port)]
        self._process = subprocess.Popen([*command, *self._options])

    def await_ready(self) -> None:
        """Wait until it answers."""
        until(self._answers, "the OpenEnv server", STARTS_S)

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        try:
            return http.get(f"{self.url}/health", timeout=5).status_code == 200
        except httpx.TransportError:
            return False


@contextmanager
def running(*options: str) -> Iterator[Server]:
    """Yield a server that answers."""
    made = Server(*options)
    try:
        made.await_ready()
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Yield a server; a test that ends it starts it again."""
    with running() as made:
        yield made


def reset(script: str, **more: Any) -> dict[str, Any]:
    """Return the arguments of a reset of a world that a script plays."""
    return {"cue": cue(script), **more}


RESETS = {
    "counting": reset("counting"),
    "wandering": reset("wandering"),
    "unscored": reset("counting", scored=False),
    "leaving": reset("leaving"),
}


@contextmanager
def playing(
    server: Server, system: RunningSystem, logs: Path, *resets: dict[str, Any], **settings: Any
) -> Iterator[tuple[Package, list[dict[str, Any]]]]:
    """Yield the package, ready to play, and its tasks."""
    named = {"server": server.url, "wait_s": STARTS_S, "resets": list(resets), **settings}
    with installed("openenv", named, system, logs) as package:
        tasks = package.tasks(logs)
        package.begin()
        yield package, tasks


@dataclass(frozen=True)
class Worlds:
    """The package, ready to play, and its tasks by their names."""

    package: Package
    tasks: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def worlds(
    server: Server, acting: AgentSystem, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worlds]:
    """Yield worlds that scripts play."""
    logs = tmp_path_factory.mktemp("worlds")
    with playing(server, acting.running, logs, *RESETS.values()) as (package, tasks):
        yield Worlds(package, dict(zip(RESETS, tasks, strict=True)))


def test_the_log_has_the_tokens_of_calls_that_act_in_a_chain(
    worlds: Worlds, acting: AgentSystem, rows: list[Row]
) -> None:
    before = len(acting.sampled(0))
    episode = worlds.package.play(worlds.tasks["counting"])
    one_chain(episode)
    same_tokens(episode.trajectory, acting.sampled(before))
    assert episode.result == {"reward": 1.0, "rewards": {"readable": 1.0}, "status": "complete"}
    rows.append(row(worlds.package, "calls of an action", SCRIPTS, episode))


def test_a_world_with_tools_of_its_own_is_played_by_calls_of_these(
    acting: AgentSystem, tmp_path: Path, rows: list[Row]
) -> None:
    with (
        running("tools") as other,
        playing(other, acting.running, tmp_path, reset("calling")) as (package, [task]),
    ):
        before = len(acting.sampled(0))
        episode = package.play(task)
    one_chain(episode)
    same_tokens(episode.trajectory, acting.sampled(before))
    assert episode.result == {"reward": 1.0, "rewards": {"readable": 1.0}, "status": "complete"}
    rows.append(row(package, "calls of tools that the world lists", SCRIPTS, episode))


def test_answers_that_are_no_action_are_answered_and_the_episode_goes_on(worlds: Worlds) -> None:
    episode = worlds.package.play(worlds.tasks["wandering"])
    one_chain(episode)
    assert episode.result == {"reward": 1.0, "rewards": {"readable": 0.0}, "status": "complete"}


def test_a_world_that_scores_no_step_is_a_failure(worlds: Worlds) -> None:
    error = worlds.package.fail(worlds.tasks["unscored"])
    assert isinstance(error, EpisodeFailed)
    assert "the world scored no step" in str(error)
    assert not error.infrastructure


def test_a_server_that_ends_takes_its_episode_along_and_is_waited_for_by_the_next(
    worlds: Worlds, server: Server
) -> None:
    error = worlds.package.fail(worlds.tasks["leaving"])
    assert isinstance(error, EpisodeFailed)
    assert not error.infrastructure
    server.end()
    server.start()
    assert worlds.package.play(worlds.tasks["counting"]).result["reward"] == 1.0


def test_a_server_that_stays_away_is_a_failure_within_the_limit(
    server: Server, acting: AgentSystem, tmp_path: Path, away: Callable[[], None]
) -> None:
    with playing(server, acting.running, tmp_path, reset("counting"), wait_s=3.0) as (
        package,
        [task],
    ):
        away()
        error = package.fail(task)
    assert isinstance(error, EpisodeFailed)
    assert f"Failed to connect to {server.url.replace('http', 'ws')}" in str(error)
    assert not error.infrastructure


@pytest.fixture
def away(server: Server) -> Iterator[Callable[[], None]]:
    """Yield a function that ends the server, which is started again after the test."""
    yield server.end
    server.start()
    server.await_ready()


def test_the_log_has_the_tokens_of_a_model_that_talks_to_a_world(
    server: Server, sampling: RunningSystem, tmp_path: Path, rows: list[Row]
) -> None:
    limits = {"turns": 2, "max_tokens": 8}
    with playing(server, sampling, tmp_path, {"seed": 1}, **limits) as (package, [task]):
        episode = package.play(task)
    one_chain(episode)
    assert len(episode.sampled) == 2
    assert episode.result == {"reward": 0, "rewards": {"readable": 0.0}, "status": "truncated"}
    rows.append(row(package, "texts that are no action", TINY, episode))


def test_an_image_is_refused_by_name(sampling: RunningSystem, tmp_path: Path) -> None:
    settings = {"server": "", "image": "echo-env:latest"}
    with (
        installed("openenv", settings, sampling, tmp_path) as package,
        pytest.raises(EnvironmentUnusable, match="'image'} starts a container"),
    ):
        package.tasks(tmp_path)
