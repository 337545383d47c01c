"""Programs as answers, tried by unit tests in the sandbox."""

import ast
import logging
import re
import secrets
import sys
from functools import cache

from seamlessflow.producers.sandbox.isolation import Isolation
from seamlessflow.producers.sandbox.sandbox import Sandbox, SandboxLimits
from seamlessflow.producers.scorers.answers import after_reasoning

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_CPU_S = 10
_TIME_S = 300.0
"""Long: on a busy machine, wall-clock time says nothing about a program."""
_PROCESSES = 16
_RUNNER = """
import os, sys
word = sys.stdin.readline()
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import unit_tests
sys.stdout.flush()
sys.__stdout__.write("\\n" + word)
"""
_HEAD = """
import solution
globals().update({name: value for name, value in vars(solution).items() if name[:2] != "__"})
"""
_log = logging.getLogger(__name__)


def unit_tests(answer: str, reference: object, cpu_s: int = _CPU_S) -> float:
    """Return 1 if Python code passes the tests in the reference, a program's text, else 0.

    The code is the last fenced block, else the whole text after the reasoning. Code that ends the
    process early has not passed. Raises `ValueError` for tests that are no Python, and
    `SandboxFailed`.
    """
    tests = str(reference)
    try:
        ast.parse(tests)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"the reference is no Python: {error}") from error
    text = after_reasoning(answer)
    blocks = _FENCE.findall(text)
    word = secrets.token_hex()
    limits = SandboxLimits(time_s=_TIME_S, cpu_s=cpu_s, processes=_PROCESSES)
    with Sandbox(limits) as sandbox:
        _warn(sandbox.isolation)
        files = {
            "runner.py": _RUNNER,
            "solution.py": (blocks[-1] if blocks else text).encode(errors="replace"),
            "unit_tests.py": _HEAD + tests,
        }
        command = [sys.executable, "-I", sandbox.path("runner.py")]
        ended = sandbox.run(command, files, stdin=f"{word}\n")
    return float(ended.status == 0 and ended.stdout.endswith(f"\n{word}\n".encode()))


@cache
def _warn(isolation: Isolation) -> None:
    """Warn once if programs run without a wall."""
    if isolation is not Isolation.BUBBLEWRAP:
        dangers = ", ".join(isolation.not_prevented)
        _log.warning("programs of answers run without bubblewrap; not prevented: %s", dangers)
