"""The example `swe_toy`: repairs of a policy, judged by a real pytest in the sandbox."""

import asyncio
import re
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from seamlessflow.producers.sandbox.sandbox import run

EXAMPLE: Any = import_module("examples.swe_toy.repositories")  # has no annotations, as a user's
RIGHT = "```python\ndef add_3(x):\n    return x + 3\n```"
WRONG = "```python\ndef add_3(x):\n    return 3\n```"


class Policy:
    """A session whose policy says these answers, and keeps what it was asked."""

    def __init__(self, *answers: str) -> None:
        self._answers = iter(answers)
        self.asked: list[str] = []

    async def ask(self, messages: list[dict[str, str]], **_: object) -> SimpleNamespace:
        self.asked.append(messages[-1]["content"])
        return SimpleNamespace(content=next(self._answers))


def played(policy: Policy, tries: int = 2) -> dict[str, Any]:
    environment = EXAMPLE.Environment(tries=tries)
    (task,) = (task for task in environment.tasks() if "x - 3" in task["files"][EXAMPLE.SOURCE])
    result: dict[str, Any] = asyncio.run(environment.run(task, policy))
    return result


def test_a_right_edit_has_the_reward_1_and_ends_the_session() -> None:
    policy = Policy(RIGHT)
    assert played(policy) == {"reward": 1.0, "rewards": {"passed": 1.0}}
    assert policy.asked == ["```python\ndef add_3(x):\n    return x - 3\n```\nassert -3 == 3"]


def test_behind_a_wrong_edit_the_policy_sees_what_pytest_said_of_it() -> None:
    policy = Policy(WRONG, RIGHT)
    assert played(policy)["reward"] == 1.0
    assert policy.asked[1] == "assert 3 == (20 + 3)"


def test_an_edit_that_some_tests_pass_has_no_reward_but_its_share() -> None:
    assert played(Policy(WRONG, WRONG)) == {"reward": 0.0, "rewards": {"passed": 0.5}}


def test_a_file_that_cannot_be_read_passes_no_test() -> None:
    broken = "```python\ndef add_3(x)\n```"
    assert played(Policy(broken), tries=1) == {"reward": 0.0, "rewards": {"passed": 0.0}}


def test_an_answer_without_a_file_changes_nothing() -> None:
    policy = Policy("x + 3", RIGHT)
    assert played(policy)["reward"] == 1.0
    assert policy.asked[1] == "assert -3 == 3"


def test_no_repository_passes_all_its_tests_as_it_is() -> None:
    environments = (EXAMPLE.Environment(held_back=part) for part in (False, True))
    tasks = [task for environment in environments for task in environment.tasks()]
    files = {}
    for number, task in enumerate(tasks):
        source, tests = task["files"][EXAMPLE.SOURCE], task["files"][EXAMPLE.TESTS]
        files[f"kit_{number}.py"] = source
        files[f"test_{number}.py"] = tests.replace("from kit ", f"from kit_{number} ")
    said = run([*EXAMPLE.PYTEST[:-1], "-rf"], files, EXAMPLE.LIMITS).stdout.decode()
    failing = set(re.findall(r"^FAILED test_(\d+)\.py", said, re.M))
    assert [tasks[number]["id"] for number in range(len(tasks)) if str(number) not in failing] == []
