"""Task directories of Harbor, and answers of a policy for its agent."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.agents.engine.scripts import keys

TESTS = "python3 -c 'from calc import add; assert add(2, 3) == 5' && echo 1 > $OUT || echo 0 > $OUT"
FIX = {"content": keys("sed -i 's/a - b/a + b/' calc.py\n")}
DONE = {"content": keys(done=True)}


def typed(command: str, wait_s: float = 0.2) -> dict[str, Any]:
    """Return a message that types a command."""
    return {"content": keys(f"{command}\n", wait_s)}


def write_task(
    folder: Path,
    tests: str = TESTS,
    config: str = "",
    metadata: Mapping[str, object] | None = None,
    instruction: str = "Sums are wrong.",
) -> Path:
    """Write the directory of a task with a wrong sum and return it."""
    (folder / "environment").mkdir(parents=True)
    (folder / "environment" / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (folder / "tests").mkdir()
    script = f"#!/bin/bash\nOUT=/logs/verifier/reward.txt\n{tests}\n"
    (folder / "tests" / "test.sh").write_text(script)
    (folder / "instruction.md").write_text(instruction)
    facts = [f"{name} = {json.dumps(value)}" for name, value in (metadata or {}).items()]
    (folder / "task.toml").write_text("\n".join([config, "[metadata]", *facts]))
    return folder
