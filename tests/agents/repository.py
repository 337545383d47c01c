"""A repository with an error in it, and its own tests."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.agents.installed import Installed

BROKEN = "def add(a, b):\n    return a - b\n"
TESTS = "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
TASK = "The test of calc.py fails. Repair calc.py, then run the tests."


@dataclass(frozen=True)
class Repository:
    """A git work tree."""

    directory: Path

    def passes(self, installed: Installed) -> bool:
        """Return True if its tests pass."""
        command = installed.script("pytest", "-q", "-p", "no:cacheprovider")
        return subprocess.run(command, cwd=self.directory, capture_output=True).returncode == 0


def repository(directory: Path) -> Repository:
    """Return a new repository with the error."""
    directory.mkdir()
    (directory / "calc.py").write_text(BROKEN)
    (directory / "test_calc.py").write_text(TESTS)
    subprocess.run(["git", "init", "--quiet", str(directory)], check=True)
    return Repository(directory)
