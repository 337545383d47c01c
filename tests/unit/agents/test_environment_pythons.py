"""Pythons of environment packages: this one, or another where it is too old."""

import sys
from pathlib import Path

from seamlessflow.producers.agents.environments.known import KnownEnvironment
from seamlessflow.producers.agents.environments.venvs import making

HOME = Path("/environments/x")


def test_an_environment_is_made_by_this_python_if_it_is_new_enough() -> None:
    package = KnownEnvironment("x", ("x",), "", sys.version_info[:2])
    assert making(package, HOME) == [sys.executable, "-m", "venv", str(HOME)]


def test_uv_finds_a_newer_python_for_a_package_that_needs_it() -> None:
    package = KnownEnvironment("x", ("x",), "", (3, 99))
    program, *options = making(package, HOME)
    assert Path(program).name == "uv"
    assert options == ["venv", "--allow-existing", "--python", ">=3.99", str(HOME)]
