"""Programs of other trainers' environments, and what the gateway says of their sessions."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import http
from tests.e2e.running_system import RunningSystem
from tests.environments.playing import PROGRAMS

LIMIT_S = 240
ADD = {
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
"""The tool of an agent that adds."""
Chain = Mapping[str, Any]


def printed(python: Path, program: str, orders: Mapping[str, Any], **variables: str) -> list[Any]:
    """Run one of `programs` to its end; return the lines of JSON that it printed."""
    environment = {
        **os.environ,  # where uv of verifiers has its certificates and its cache
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        **variables,
    }
    done = subprocess.run(
        [str(python), str(PROGRAMS / program), json.dumps(orders)],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{program}\n{done.stdout}\n{done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]


def chains(system: RunningSystem, session_id: str) -> list[Chain]:
    """Return a session's chains, as the gateway gives them to other trainers."""
    headers = {"authorization": f"Bearer {system.admin_key}"}
    url = f"{system.url}/sessions/{session_id}/chains"
    answer = http.get(url, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    listed: list[Chain] = answer.json()["chains"]
    return listed
