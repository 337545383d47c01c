"""Task directories of Harbor: its agent asks the policy, and its verifier gives rewards."""

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.producers.agents.environments.child import EnvironmentUnusable, EpisodeFailed
from seamlessflow.producers.agents.environments.listing import write_tasks
from tests.environments.episodes import RunningEnvironment, installed, running
from tests.environments.harbor_tasks import DONE, FIX, TESTS, typed, write_task


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEnvironment]:
    """Return the package's process."""
    settings = {"steps": 3, "max_tokens": 99}
    with running(installed("harbor", settings, tmp_path_factory.mktemp("logs"))) as made:
        yield made


def task(folder: Path, **more: Any) -> dict[str, Any]:
    """Write a task and return its line."""
    return {"id": folder.name, "path": str(write_task(folder, **more))}


def listed(tmp_path: Path, **settings: Any) -> list[dict[str, Any]]:
    """Return the tasks that the package lists."""
    file = tmp_path / "listed.jsonl"
    spec = installed("harbor", {"tasks": str(tmp_path / "tasks"), **settings}, tmp_path)
    asyncio.run(write_tasks(spec, file, print))
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_a_solved_task_has_the_verifiers_rewards(agent: RunningEnvironment, tmp_path: Path) -> None:
    ended = agent.run(task(tmp_path / "solved"), FIX, DONE, DONE)
    assert ended.result == {"reward": 1.0, "rewards": {}, "status": "complete"}
    first, second, third = ended.requests
    assert {request["max_tokens"] for request in ended.requests} == {99}
    assert "Sums are wrong." in first["messages"][0]["content"]
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert "Are you sure" in third["messages"][-1]["content"]


def test_an_unsolved_task_is_worth_what_its_tests_say(
    agent: RunningEnvironment, tmp_path: Path
) -> None:
    ended = agent.run(task(tmp_path / "unsolved"), DONE, DONE)
    assert (ended.result["reward"], ended.result["status"]) == (0.0, "complete")


def test_an_agent_without_further_calls_is_tested_all_the_same(
    agent: RunningEnvironment, tmp_path: Path
) -> None:
    look = typed("ls")
    ended = agent.run(task(tmp_path / "long"), FIX, look, look)
    assert (ended.result["reward"], ended.result["status"]) == (1.0, "truncated")
    assert len(ended.requests) == 3


def test_the_tests_see_the_servers_that_the_agent_started(
    agent: RunningEnvironment, tmp_path: Path
) -> None:
    tests = 'test "$(cat < /dev/tcp/127.0.0.1/8000)" = hello && echo 1 > $OUT || echo 0 > $OUT'
    program = "import socket; socket.create_server(('127.0.0.1', 8000)).accept()[0].send(b'hello')"
    served = typed(f'python3 -c "{program}" &', 2.0)
    ended = agent.run(task(tmp_path / "served", tests=tests), served, DONE, DONE)
    assert ended.result["reward"] == 1.0


def test_without_bubblewrap_no_task_is_listed(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks" / "sum")
    spec = installed("harbor", {"tasks": str(tmp_path / "tasks")}, tmp_path)
    bare = replace(spec, environment={**os.environ, "PATH": str(tmp_path)})
    with pytest.raises(EnvironmentUnusable, match="needs bubblewrap, and that does not work here"):
        asyncio.run(write_tasks(bare, tmp_path / "listed.jsonl", print))


def test_several_rewards_have_their_names(tmp_path: Path) -> None:
    written = 'echo \'{"style": 0.5, "right": 1}\' > /logs/verifier/reward.json'
    two = task(tmp_path / "two", tests=written)
    with running(installed("harbor", {"reward": "right"}, tmp_path)) as agent:
        ended = agent.run(two, DONE, DONE)
    assert ended.result == {"reward": 1, "rewards": {"style": 0.5}, "status": "complete"}


@pytest.mark.parametrize(
    ("answer", "infrastructure"), [(500, True), (503, True), (429, True), (409, False)]
)
def test_a_refused_call_is_made_once_and_fails_the_episode(
    agent: RunningEnvironment, tmp_path: Path, answer: int, infrastructure: bool
) -> None:
    ended = agent.run(task(tmp_path / "refused"), answer)
    assert isinstance(ended.result, EpisodeFailed)
    assert ended.result.infrastructure == infrastructure
    assert len(ended.requests) == 1


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        ("echo broken", "broken"),
        ("echo nan > $OUT", "Non-finite"),
        ("kill -9 -1; sleep 100", "no valid reward"),
    ],
)
def test_tests_without_a_reward_are_a_failure(
    agent: RunningEnvironment, tmp_path: Path, tests: str, words: str
) -> None:
    failed = agent.run(task(tmp_path / "broken", tests=tests), DONE, DONE).result
    assert isinstance(failed, EpisodeFailed)
    assert words in str(failed)
    assert not failed.infrastructure


def test_commands_see_neither_the_machine_nor_the_key(
    agent: RunningEnvironment, tmp_path: Path
) -> None:
    look = typed(f"env; ls {tmp_path}; cat < /dev/tcp/127.0.0.1/1", 1.0)
    ended = agent.run(task(tmp_path / "looking"), look, DONE, DONE)
    observed = ended.requests[1]["messages"][-1]["content"]
    assert "Network is unreachable" in observed or "refused" in observed
    assert "key-" not in observed
    assert "instruction" not in observed


def test_task_directories_are_listed_with_their_metadata(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks" / "b", metadata={"difficulty": "easy", "tags": ["a"]})
    write_task(tmp_path / "tasks" / "a")
    first, second = listed(tmp_path)
    assert [first["id"], second["id"]] == ["a", "b"]
    assert (first["metadata"], second["metadata"]) == ({}, {"difficulty": "easy"})


STRANGE = {
    "image": ("[environment]\ndocker_image = 'ubuntu:24.04'", "environment.docker_image"),
    "windows": ("[environment]\nos = 'windows'", "environment.os is windows"),
    "gpus": ("[environment]\ngpus = 1", "environment.gpus"),
    "public": (
        "[environment]\nnetwork_mode = 'public'",
        "network_mode public without settings.network",
    ),
    "hosts": (
        "[environment]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['a.b']",
        "network_mode allowlist",
    ),
    "phase": ("[agent]\nnetwork_mode = 'no-network'", "network_mode no-network of a phase alone"),
    "user": ("[agent]\nuser = 'someone'", "agent.user"),
    "separate": (
        "[verifier]\nenvironment_mode = 'separate'",
        "an environment of the verifier's own",
    ),
}


def test_tasks_that_the_sandbox_is_not_enough_for_are_refused_by_name(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks" / "fine")
    for name, (config, _) in STRANGE.items():
        folder = write_task(tmp_path / "tasks" / name, config=config)
        if name == "windows":
            (folder / "tests" / "test.sh").rename(folder / "tests" / "test.bat")
    with pytest.raises(EnvironmentUnusable) as refused:
        listed(tmp_path)
    lines = str(refused.value).splitlines()
    for name, (_, reason) in STRANGE.items():
        assert f"{name}: {reason}" in lines
    assert not any(line.startswith("fine") for line in lines)


def test_a_task_of_a_dockerfile_is_refused_unless_a_container_is_named(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "tasks" / "docker", tests=TESTS)
    (folder / "environment" / "Dockerfile").write_text("FROM ubuntu:24.04\n")
    with pytest.raises(EnvironmentUnusable, match="docker: Dockerfile needs a container"):
        listed(tmp_path)
    (made,) = listed(tmp_path, container="docker")
    assert made["id"] == "docker"
    with running(installed("harbor", {}, tmp_path)) as agent:
        failed = agent.run(made).result
    assert "Dockerfile needs a container" in str(failed)
