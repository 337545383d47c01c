"""Judges of games of Trail: functions of session and turns, and a program that reads JSON."""

import json
import sys

from seamlessflow.recorded.judging.judged_session import JudgedSession


def brief(session: JudgedSession) -> float:
    """Return a reward that falls with the number of turns."""
    return 1.0 / (1 + len(session.turns))


def alive(session: JudgedSession) -> list[float]:
    """Return for each turn a reward that its tokens tell apart."""
    return [float(sum(turn.tokens) % 2) for turn in session.turns]


def main() -> None:
    """Print the share of different tokens among those that were sampled."""
    session = json.load(sys.stdin)
    tokens = [token for turn in session["turns"] for token in turn["tokens"]]
    print(len(set(tokens)) / max(1, len(tokens)))


if __name__ == "__main__":
    main()
