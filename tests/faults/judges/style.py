"""A judge that is a program: it is killed while it reads. And a judge of turns, a function."""

import json
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seamlessflow.recorded.judging.judged_session import JudgedSession

READS_S = 0.3


def steps(session: "JudgedSession") -> list[float]:
    """Return a reward for each turn."""
    return [1.0 / len(turn.tokens) for turn in session.turns]


if __name__ == "__main__":
    judged = json.load(sys.stdin)
    time.sleep(READS_S)
    print(len(judged["tokens"]) % 2)
