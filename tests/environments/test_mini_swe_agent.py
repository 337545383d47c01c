"""Repairs by mini-swe-agent: the reward is what the repository's tests say."""

import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.producers.agents.environments.child import EpisodeFailed
from seamlessflow.producers.agents.environments.listing import write_tasks
from tests.builders.policy_server import called
from tests.environments.episodes import RunningEnvironment, installed, running

SUBMIT = called("bash", command="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
REPAIR = called("bash", command="sed -i 's/a - b/a + b/' calc.py")
LOOK = called("bash", command="cat calc.py")
TEST = "python -c 'from calc import add; assert add(2, 3) == 5'"


@pytest.fixture
def task(tmp_path: Path) -> dict[str, Any]:
    """Return the task of an archive with a wrong sum."""
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    archive = shutil.make_archive(str(tmp_path / "calc"), "gztar", repository)
    return {"id": "sum", "issue": "Sums are wrong.", "repository": archive, "test": TEST}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEnvironment]:
    """Return the package's process."""
    settings = {
        "prefixes": [sys.prefix, sys.base_prefix],
        "steps": 3,
        "limits": {"time_s": 5},
        "max_tokens": 99,
    }
    with running(installed("mini_swe_agent", settings, tmp_path_factory.mktemp("logs"))) as made:
        yield made


def test_a_repaired_repository_is_worth_one(
    agent: RunningEnvironment, tmp_path: Path, task: dict[str, Any]
) -> None:
    ended = agent.run(task, REPAIR, SUBMIT)
    assert ended.result == {"reward": 1.0, "rewards": {"submitted": 1.0}, "status": "complete"}
    first, second = ended.requests
    assert (first["max_tokens"], second["max_tokens"]) == (99, 99)
    assert "Sums are wrong." in first["messages"][1]["content"]
    assert second["messages"][:2] == first["messages"]
    assert "a - b" in (tmp_path / "repository" / "calc.py").read_text()


def test_an_agent_without_a_repair_is_worth_nothing(
    agent: RunningEnvironment, task: dict[str, Any]
) -> None:
    ended = agent.run(task, SUBMIT)
    assert ended.result == {"reward": 0.0, "rewards": {"submitted": 1.0}, "status": "complete"}


def test_an_answer_without_a_call_is_left_out_of_the_history(
    agent: RunningEnvironment, task: dict[str, Any]
) -> None:
    ended = agent.run(task, {"content": "I think."}, REPAIR, SUBMIT)
    assert ended.result["reward"] == 1.0
    assert [message["role"] for message in ended.requests[1]["messages"]] == [
        *("system", "user", "user")
    ]


def test_an_agent_that_runs_out_of_steps_is_tested_all_the_same(
    agent: RunningEnvironment, task: dict[str, Any]
) -> None:
    ended = agent.run(task, REPAIR, LOOK, LOOK)
    assert ended.result == {"reward": 1.0, "rewards": {"submitted": 0.0}, "status": "truncated"}
    assert len(ended.requests) == 3


@pytest.mark.parametrize(
    ("command", "reward"),
    [
        ("mkdir tests; echo pass > tests/check.py", 0.0),
        ("mkdir t; echo pass > t/check.py; ln -s t tests", 0.0),
        ("sed -i 's/a - b/a + b/' calc.py", 1.0),
    ],
)
def test_hidden_tests_replace_what_the_agent_wrote(
    agent: RunningEnvironment, tmp_path: Path, task: dict[str, Any], command: str, reward: float
) -> None:
    hidden = tmp_path / "hidden" / "tests"
    hidden.mkdir(parents=True)
    (hidden / "check.py").write_text("from calc import add\nassert add(2, 3) == 5\n")
    task |= {"hidden": str(hidden.parent), "test": "PYTHONPATH=. python tests/check.py"}
    assert agent.run(task, called("bash", command=command), SUBMIT).result["reward"] == reward


def test_commands_see_neither_the_machine_nor_the_key(
    agent: RunningEnvironment, tmp_path: Path, task: dict[str, Any]
) -> None:
    look = called("bash", command=f"pwd; env; ls {tmp_path}; cat < /dev/tcp/127.0.0.1/1")
    observed = agent.run(task, look, SUBMIT).requests[1]["messages"][-1]["content"]
    assert "/sandbox" in observed
    assert "key-" not in observed
    assert "calc.tar.gz" not in observed


def test_the_end_of_a_slow_command_is_observed(
    agent: RunningEnvironment, task: dict[str, Any]
) -> None:
    slow = called("bash", command="echo before; sleep 60")
    observed = agent.run(task, slow, SUBMIT).requests[1]["messages"][-1]["content"]
    assert "before" in observed
    assert "limit of time" in observed


@pytest.mark.parametrize(
    ("answer", "infrastructure"), [(500, True), (503, True), (409, False), (400, False)]
)
def test_a_refused_call_is_made_once_and_fails_the_episode(
    agent: RunningEnvironment, task: dict[str, Any], answer: int, infrastructure: bool
) -> None:
    ended = agent.run(task, answer)
    assert isinstance(ended.result, EpisodeFailed)
    assert ended.result.infrastructure == infrastructure
    assert len(ended.requests) == 1


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"test": "no-such-program"}, "the tests cannot be started"),
        ({"repository": "/nowhere.tar.gz"}, "nowhere"),
    ],
)
def test_a_broken_task_is_a_failure_and_no_reward(
    agent: RunningEnvironment, task: dict[str, Any], broken: dict[str, str], words: str
) -> None:
    failed = agent.run(task | broken, SUBMIT).result
    assert isinstance(failed, EpisodeFailed)
    assert words in str(failed)
    assert not failed.infrastructure


def test_the_lines_of_a_file_are_listed_with_whole_paths(
    tmp_path: Path, task: dict[str, Any]
) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps({**task, "repository": "calc.tar.gz"}))
    settings = {"tasks": str(tmp_path / "tasks.jsonl")}
    listed = tmp_path / "listed.jsonl"
    spec = installed("mini_swe_agent", settings, tmp_path)
    assert asyncio.run(write_tasks(spec, listed, print)) == 1
    assert json.loads(listed.read_text()) == task
