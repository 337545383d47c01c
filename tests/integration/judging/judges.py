"""Judges of reward workers that tests kill: each leaves a line for each of its calls."""

import os
import time
from pathlib import Path

from seamlessflow.recorded.judging.judged_session import JudgedSession

CALLS = "JUDGE_CALLS"
"""Variable that names the file for the lines."""
AWAY = "JUDGE_AWAY"
"""Variable that names a file; as long as it is there, a judge is away."""
SLOW_S = 0.05


def level(session: JudgedSession) -> float:
    """Return a number that the session's id ends with."""
    _note("level", session)
    time.sleep(SLOW_S)
    return float(session.session_id.rpartition("-")[2])


def task(session: JudgedSession) -> dict[str, float]:
    """Return a number of the task."""
    _note("task", session)
    return {"reward": session.task["worth"]}


def absent(session: JudgedSession) -> float:
    """Return 1, unless what it needs is away."""
    _note("absent", session)
    if Path(os.environ[AWAY]).exists():
        raise ConnectionError("away")
    return 1.0


def slow(session: JudgedSession) -> float:
    """Return 0.5, once what it needs is there."""
    _note("slow", session)
    while Path(os.environ[AWAY]).exists():
        time.sleep(SLOW_S)
    return 0.5


def prose(session: JudgedSession) -> str:
    """Return what is no reward."""
    _note("prose", session)
    return "a fine session, I should say"


def _note(judge: str, session: JudgedSession) -> None:
    with Path(os.environ[CALLS]).open("a", encoding="utf-8") as lines:
        lines.write(f"{judge} {session.session_id}\n")
