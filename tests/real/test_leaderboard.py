"""The agent of examples/function_calling, judged by the leaderboard's own worlds and checker."""

import asyncio
import importlib.util
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.paths import ROOT

pytestmark = pytest.mark.real
EXAMPLE = ROOT / "examples" / "function_calling"
PYTHON = ROOT / ".venv-leaderboard" / "bin" / "python"
Reward = Callable[[dict[str, Any], list[dict[str, Any]]], tuple[float, int]]
DONE = {"role": "assistant", "content": "Done."}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the tasks, which the leaderboard's environment writes."""
    directory = tmp_path_factory.mktemp("tasks")
    leaderboard = [str(PYTHON), str(EXAMPLE / "leaderboard.py"), "tasks", str(directory)]
    subprocess.run(leaderboard, check=True, timeout=120)
    return directory


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    """Return the event loop of all sessions."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def agent(runner: asyncio.Runner) -> Iterator[ModuleType]:
    """Return the example's module; its process of the leaderboard ends with the tests."""
    spec = importlib.util.spec_from_file_location("function_calling", EXAMPLE / "agent.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    process = module.leaderboard.process
    process.kill()
    runner.run(process.wait())


@pytest.fixture
def reward(runner: asyncio.Runner, agent: ModuleType) -> Reward:
    """Return the agent as a function: of a task and the policy's answers, to its reward and how
    many answers it asked for.
    """

    def play(task: dict[str, Any], answers: list[dict[str, Any]]) -> tuple[float, int]:
        calls: list[httpx.Request] = []

        def answer(request: httpx.Request) -> httpx.Response:
            calls.append(request)
            message = answers[len(calls) - 1]
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            head = {"id": "1", "object": "chat.completion", "created": 0, "model": "policy"}
            return httpx.Response(200, json={**head, "choices": [choice]})

        async def run() -> float:
            async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
                where = {"base_url": "http://policy/v1", "api_key": "key", "http_client": client}
                session = SimpleNamespace(**where, model="policy")
                result: float = await agent.run(task, session)
                return result

        return runner.run(run()), len(calls)

    return play


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def answers_in(conversation: dict[str, Any]) -> list[dict[str, Any]]:
    return [message for message in conversation["messages"] if message["role"] == "assistant"]


def test_the_right_calls_of_one_turn_are_worth_1(reward: Reward, tasks: Path) -> None:
    task = lines(tasks / "warm_up.jsonl")[0]
    assert reward(task, answers_in(task)) == (1.0, 1)


def test_a_text_in_place_of_a_call_is_worth_0(reward: Reward, tasks: Path) -> None:
    assert reward(lines(tasks / "warm_up.jsonl")[0], [DONE]) == (0.0, 1)


def test_the_right_calls_of_all_turns_are_worth_1(reward: Reward, tasks: Path) -> None:
    for task in lines(tasks / "multi_turn_warm_up.jsonl"):
        answers = answers_in(task)
        assert reward(task, answers) == (1.0, len(answers)), task["id"]


def test_a_session_ends_at_its_first_wrong_turn_with_the_share_before_it(
    reward: Reward, tasks: Path
) -> None:
    task = lines(tasks / "multi_turn_warm_up.jsonl")[0]
    answers = answers_in(task)
    first = answers.index(DONE) + 1
    expected = (1 / len(task["turns"]), first + 1)
    assert reward(task, [*answers[:first], DONE, *answers[first:]]) == expected


def test_two_sessions_of_a_task_have_worlds_of_their_own(reward: Reward, tasks: Path) -> None:
    task = lines(tasks / "multi_turn_warm_up.jsonl")[0]
    answers = answers_in(task)
    assert [reward(task, answers) for _ in range(2)] == [(1.0, len(answers))] * 2


@pytest.mark.parametrize(
    ("kind", "warm_up"), [("single", "warm_up"), ("multi_turn", "multi_turn_warm_up")]
)
def test_no_held_back_task_is_trained_on(tasks: Path, kind: str, warm_up: str) -> None:
    def ids(name: str) -> set[str]:
        return {task["id"] for task in lines(tasks / f"{name}.jsonl")}

    assert ids(f"{kind}_held_back").isdisjoint(ids(f"{kind}_train") | ids(warm_up))
