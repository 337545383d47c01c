"""Pythons of environment packages: this one, or another where it is too old."""

import os
import re
import sys
from pathlib import Path

import pytest

from seamlessflow.producers.agents.environments.child import EnvironmentUnusable
from seamlessflow.producers.agents.environments.known import KNOWN, KnownEnvironment
from seamlessflow.producers.agents.environments.venvs import (
    environment_spec,
    making,
    other_versions,
)
from seamlessflow.producers.agents.settings import AgentsSection

HOME = Path("/environments/x")


def test_an_environment_is_made_by_this_python_if_it_is_new_enough() -> None:
    package = KnownEnvironment("x", ("x",), "", sys.version_info[:2])
    assert making(package, HOME) == [sys.executable, "-m", "venv", str(HOME)]


def test_uv_finds_a_newer_python_for_a_package_that_needs_it() -> None:
    package = KnownEnvironment("x", ("x",), "", (3, 99))
    program, *options = making(package, HOME)
    assert Path(program).name == "uv"
    assert options == ["venv", "--allow-existing", "--python", ">=3.99", str(HOME)]


def test_a_package_that_is_not_installed_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    agents = AgentsSection(environment="verifiers")
    with pytest.raises(EnvironmentUnusable, match="seamlessflow environments install verifiers"):
        environment_spec(agents, os.environ, tmp_path / "environment.log")


def test_a_package_of_another_version_is_named_with_the_one_of_the_lock() -> None:
    (locked,) = re.findall(r"^openai==(\S+)", KNOWN["nemo_gym"].lock.read_text(), re.MULTILINE)
    assert other_versions(KNOWN["nemo_gym"], {"openai": locked}) == ""
    made_for = f"and the adapter is made for {locked}"
    assert other_versions(KNOWN["nemo_gym"], {"openai": "1.0"}) == f"openai 1.0, {made_for}"
    assert other_versions(KNOWN["nemo_gym"], {}) == f"no openai, {made_for}"
