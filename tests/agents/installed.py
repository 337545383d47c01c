"""Agents as subprocesses, out of the environment that `scripts/test-agents` made.

Each gets a home of its own and a working directory, no variables but those it needs, and a time
limit. What it printed is shown when it fails.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
LIMIT_S = 240


@dataclass(frozen=True)
class Installed:
    """The environment: a Python one, with `node_modules` in its directory `node`."""

    directory: Path

    def program(self, name: str, *arguments: str) -> list[str]:
        """Return the command of one of `programs/`."""
        return [str(self.directory / "bin/python"), str(PROGRAMS / name), *arguments]

    def script(self, name: str, *arguments: str) -> list[str]:
        """Return the command of a script that a Python package installed."""
        return [str(self.directory / "bin" / name), *arguments]

    def node(self, path: str, *arguments: str) -> list[str]:
        """Return the command of a file of a Node package."""
        return ["node", str(self.directory / "node/node_modules" / path), *arguments]

    def run(self, command: list[str], where: Path, **variables: str) -> str:
        """Run the command to its end in `where`; return its standard output."""
        home = where.parent / f"{where.name}-home"
        home.mkdir(exist_ok=True)
        environment = {
            "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            **variables,
        }
        done = subprocess.run(
            ["timeout", "--kill-after=5", str(LIMIT_S), *command],
            cwd=where,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (
            f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done.stdout
