"""Commands in the folder of an example, as a page says them."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

LIMIT_S = 400


def seamlessflow(folder: Path, *arguments: str, **variables: str) -> str:
    """Run a command in the folder of an example; return what it printed."""
    environment: Mapping[str, str] = {**os.environ, "COLUMNS": "200", **variables}
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
