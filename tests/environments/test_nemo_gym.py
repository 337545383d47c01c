"""Rows of NeMo Gym: the adapter seeds, calls, verifies and closes over HTTP."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.producers.agents.environments.child import EnvironmentUnusable, EpisodeFailed
from seamlessflow.producers.agents.environments.listing import write_tasks
from tests.builders.policy_server import called
from tests.environments.episodes import RunningEnvironment, installed, running
from tests.environments.resources_server import ROW, ResourcesServer, resources_server

ADD = called("increment_counter", count=3)
DONE = {"content": "Done."}


def task(**more: object) -> dict[str, Any]:
    return {"id": "counter-0", "row": {**ROW, **more}}


@pytest.fixture
def server(gym: tuple[ResourcesServer, RunningEnvironment]) -> Iterator[ResourcesServer]:
    """Return the resources server, in order and without sessions at the end."""
    resources = gym[0]
    resources.posts.clear()
    yield resources
    resources.broken.clear()
    assert resources.counters == {}


@pytest.fixture
def agent(gym: tuple[ResourcesServer, RunningEnvironment]) -> RunningEnvironment:
    return gym[1]


@pytest.fixture(scope="module")
def gym(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ResourcesServer, RunningEnvironment]]:
    """Return a resources server and the process of the adapter."""
    with resources_server() as server:
        settings = {"server": server.url, "data": "", "steps": 3, "max_output_tokens": 99}
        with running(installed("nemo_gym", settings, tmp_path_factory.mktemp("logs"))) as made:
            yield server, made


def test_calls_of_tools_are_posts_and_the_verdict_is_the_reward(
    agent: RunningEnvironment, server: ResourcesServer
) -> None:
    ended = agent.run(task(), ADD, DONE)
    assert ended.result == {"reward": 1.0, "rewards": {}, "status": "complete"}
    routes = ["/seed_session", "/increment_counter", "/verify", "/close_session"]
    assert server.posts == routes
    first, second = ended.requests
    assert (first["max_output_tokens"], first["model"]) == (99, "default")
    assert second["input"][:1] == first["input"]
    assert second["input"][1]["type"] == "function_call"
    assert json.loads(second["input"][2]["output"]) == {"success": True}


def test_sessions_of_the_server_are_apart(
    agent: RunningEnvironment, server: ResourcesServer
) -> None:
    results = [agent.run(task(), *answers).result for answers in ([ADD, DONE], [DONE], [ADD, DONE])]
    assert [result["reward"] for result in results] == [1.0, 0.0, 1.0]


def test_components_are_named_rewards(agent: RunningEnvironment, server: ResourcesServer) -> None:
    result = agent.run(task(verdict={"reward_components": {"form": 0.5}}), DONE).result
    assert result == {"reward": 0.0, "rewards": {"form": 0.5}, "status": "complete"}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (called("increment_counter"), "count is missing"),
        (called("verify", expected_count=3), "there is no tool 'verify'"),
        (called("nothing"), "there is no tool 'nothing'"),
    ],
)
def test_a_bad_call_is_the_policys_to_mend(
    agent: RunningEnvironment, server: ResourcesServer, call: dict[str, Any], words: str
) -> None:
    ended = agent.run(task(), call, ADD, DONE)
    assert words in ended.requests[1]["input"][-1]["output"]
    assert ended.result["reward"] == 1.0
    assert server.posts.count("/verify") == 1


def test_a_policy_without_an_end_is_truncated(
    agent: RunningEnvironment, server: ResourcesServer
) -> None:
    ended = agent.run(task(expected_count=12), ADD, ADD, ADD)
    assert ended.result == {"reward": 1.0, "rewards": {}, "status": "truncated"}


def test_a_masked_sample_is_a_failure_and_no_reward(
    agent: RunningEnvironment, server: ResourcesServer
) -> None:
    verdict = {"mask_sample": True, "failure_kind": "judge_error", "failure_reason": "away"}
    failed = agent.run(task(verdict=verdict), ADD, DONE).result
    assert isinstance(failed, EpisodeFailed)
    assert "the sample is masked: judge_error, away" in str(failed)
    assert not failed.infrastructure


@pytest.mark.parametrize("route", ["/increment_counter", "/verify"])
def test_a_server_that_is_away_is_tried_again(
    agent: RunningEnvironment, server: ResourcesServer, route: str
) -> None:
    server.broken[route] = 503
    failed = agent.run(task(), ADD, DONE).result
    assert isinstance(failed, EpisodeFailed)
    assert failed.infrastructure


def test_a_refused_call_is_made_once(agent: RunningEnvironment, server: ResourcesServer) -> None:
    ended = agent.run(task(), 409)
    assert isinstance(ended.result, EpisodeFailed)
    assert len(ended.requests) == 1
    assert "/verify" not in server.posts


def test_rows_are_tasks(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps(row) for row in (ROW, {**ROW, "id": "second"})))
    spec = installed("nemo_gym", {"server": "http://127.0.0.1:9", "data": str(rows)}, tmp_path)
    file = tmp_path / "listed.jsonl"
    asyncio.run(write_tasks(spec, file, print))
    listed = [json.loads(line) for line in file.read_text().splitlines()]
    assert [entry["id"] for entry in listed] == ["rows-0", "rows-second"]
    assert listed[0]["row"] == ROW


def test_a_server_that_is_not_there_is_named_at_the_start(tmp_path: Path) -> None:
    spec = installed("nemo_gym", {"server": "http://127.0.0.1:9", "data": ""}, tmp_path)
    with pytest.raises(EnvironmentUnusable, match="ConnectError"), running(spec):
        pass
