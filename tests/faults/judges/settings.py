"""Settings of a run with an environment package, judges of three kinds, and reward workers."""

import sys
from pathlib import Path
from typing import Any

from tests.faults.faulty_run import Changes
from tests.faults.judges import style

ENVIRONMENT = "reasoning_gym"
REWARD = "reward"
MODEL, PROGRAM, OF_TURNS = "right", "style", "steps"
JUDGES = (MODEL, PROGRAM, OF_TURNS)
TOKENS = 12
_TRIES = 30
"""Further tries of a judge: each kill costs one."""


def changes(tasks: Path, packages: dict[str, Any], model_url: str) -> Changes:
    """Return the settings over those of `faulty_run`: these tasks of the environment."""
    model = {"url": model_url, "name": "m", "prompt": "Rate $answer of $metadata"}
    weights = {REWARD: 1.0, **dict.fromkeys(JUDGES, 0.5)}
    return {
        "pacing": {"tasks": str(tasks)},
        "agents": {
            "callable": "",
            "environment": ENVIRONMENT,
            "environment_processes": 2,
            "settings": packages,
        },
        # Answers of a script are equal, and groups of equal rewards would be left out.
        "trainer": {"rewards": weights, "advantage": "session_and_turn", "filters": {}},
        "rewards": {
            "workers": 2,
            "wait_s": 120,
            "judges": {
                MODEL: {"model": model, "timeout_s": 10, "retries": _TRIES},
                PROGRAM: {"command": [sys.executable, style.__file__], "retries": _TRIES},
                OF_TURNS: {"callable": f"{style.__name__}:steps", "of": "turns"},
            },
        },
    }
