"""Child process that compares mathematical answers, when it fails."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from seamlessflow.producers.scorers.mathematics import MathProcess, MathProcessLost

FRAGILE = """
import json, sys
print("ready", flush=True)
for line in sys.stdin:
    if "deadly" in line:
        sys.exit(3)
    print(json.dumps(float("right" in line)), flush=True)
"""


@contextmanager
def process(program: str) -> Iterator[MathProcess]:
    with closing(MathProcess([sys.executable, "-c", program])) as running:
        yield running


def test_an_answer_at_which_the_child_ends_has_no_reward_and_harms_no_other() -> None:
    with process(FRAGILE) as running:
        assert running.compare("right", "r") == 1.0
        assert running.compare("deadly", "r") == 0.0
        assert running.compare("right", "r") == 1.0
        assert running.compare("wrong", "r") == 0.0


def test_a_child_that_cannot_start_is_no_score_of_0() -> None:
    lost = pytest.raises(MathProcessLost, match="it ended before its first line")
    with process("import sys; sys.exit('no')") as running, lost:
        running.compare("1", "1")
