"""Repositories with a bug each: the policy edits a file, and pytest gives the reward.

An environment of one's own. It lists its tasks, which are made from templates, and plays them. The
hash of a function's name decides whether it is held back.
"""

import asyncio
import hashlib
import re
import sys
from functools import cache

from seamlessflow.producers.sandbox.sandbox import SandboxLimits, run

NUMBERS = range(2, 12)
TEMPLATES = [
    # function, argument, expressions with a bug, what must hold; N is the number
    ("add_N", "x", ["x - N", "x * N"], ["add_N(0) == N", "add_N(20) == 20 + N"]),
    ("minus_N", "x", ["x + N", "N - x"], ["minus_N(N) == 0", "minus_N(20) == 20 - N"]),
    ("times_N", "x", ["x + N", "x / N"], ["times_N(1) == N", "times_N(30) == 30 * N"]),
    ("above_N", "x", ["x < N", "x == N"], ["above_N(20)", "not above_N(N)"]),
    ("below_N", "x", ["x > N", "x == N"], ["below_N(1)", "not below_N(N)"]),
    ("over_N", "x", ["x * N", "N / x"], ["over_N(N) == 1", "over_N(20 * N) == 20"]),
    ("equals_N", "x", ["x != N", "x > N"], ["equals_N(N)", "not equals_N(20)"]),
]
SOURCE, TESTS = "kit.py", "test_kit.py"
LIMITS = SandboxLimits(time_s=300, cpu_s=20)
PYTEST = [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload", "--tb=short", TESTS]
FENCED = re.compile(r"```python\n(.*?)```", re.S)
FAULT = re.compile(r"^E +(.{1,80})", re.M)
PASSED = re.compile(r"(\d+) passed")
SHOWN = [
    {"role": "system", "content": "Repair the function."},
    {
        "role": "user",
        "content": "```python\ndef half(x):\n    return x * 2\n```\nassert 16 == 4",
    },
    {"role": "assistant", "content": "```python\ndef half(x):\n    return x / 2\n```"},
]
"""An example in each prompt, by which the model answers with a file."""


class Environment:
    """Repositories of each template, number and bug."""

    def __init__(self, held_back=False, tries=2, **options):
        """`tries`: edits of a session; behind a wrong one the policy sees what pytest said.
        `options`: of each call, such as `max_tokens`.
        """
        self._held_back = held_back
        self._tries = tries
        self._options = options

    def tasks(self):
        """Yield the repositories that are held back, or all others."""
        for template in TEMPLATES:
            for number in NUMBERS:
                for task in repositories(*template, str(number)):
                    if task["held_back"] == self._held_back:
                        yield task

    async def run(self, task, session):
        """Let the policy edit the file until all tests pass, or its tries are over."""
        source, tests = task["files"][SOURCE], task["files"][TESTS]
        passed, said = await asyncio.to_thread(tested, source, tests)
        messages = [*SHOWN, user(f"```python\n{source}```\n{said}")]
        for _ in range(self._tries):
            answer = (await session.ask(messages, **self._options)).content or ""
            if edit := FENCED.search(answer):
                passed, said = await asyncio.to_thread(tested, edit[1], tests)
            if passed == task["tests"]:
                break
            messages += [{"role": "assistant", "content": answer}, user(said)]
        share = passed / task["tests"]
        return {"reward": float(share == 1), "rewards": {"passed": share}}


def user(content):
    """Return a message to the policy."""
    return {"role": "user", "content": content}


@cache
def tested(source, tests):
    """Return the number of tests that pass in the sandbox, and the fault that pytest names first.

    Equal repositories are tested once in a process.
    """
    said = run(PYTEST, {SOURCE: source, TESTS: tests}, LIMITS).stdout.decode(errors="replace")
    count = PASSED.search(said)
    fault = FAULT.search(said)
    return int(count[1]) if count else 0, fault[1] if fault else "no test ran"


def repositories(name, argument, bugs, conditions, number):
    """Yield a task for each bug of a template."""
    function = name.replace("N", number)
    held_back = hashlib.sha256(function.encode()).digest()[0] % 5 == 0
    tests = [f"def test_{at}():\n    assert {text}\n" for at, text in enumerate(conditions)]
    for kind, bug in enumerate(bugs):
        source = f"def {name}({argument}):\n    return {bug}\n"
        files = {SOURCE: source, TESTS: "\n\n".join([f"from kit import {name}\n", *tests])}
        yield {
            "id": f"{function}-{kind}",
            "metadata": {"template": name},
            "held_back": held_back,
            "files": {path: text.replace("N", number) for path, text in files.items()},
            "tests": len(tests),
        }
