"""Modules of the working directory: imported last, and told apart from libraries."""

import sys
from pathlib import Path

import pytest

from seamlessflow.infra.user_modules import hidden_by, import_from_here


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, an empty one, which is not on the path yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_a_module_of_the_working_directory_is_found(here: Path) -> None:
    (here / "solver_of_this_test.py").write_text("def run(): ...")
    module = import_from_here("solver_of_this_test")
    assert callable(module.run)
    assert hidden_by(module) == ""
    assert sys.path[-1] == str(here)


def test_it_hides_no_library_and_the_library_that_hides_it_is_named(here: Path) -> None:
    (here / "yaml.py").write_text("def run(): ...")
    library = import_from_here("yaml")
    reason = hidden_by(library)
    assert reason.startswith(f"; it is {library.__file__}, which hides {here / 'yaml.py'}")
    assert reason.endswith("give your module another name")


def test_a_library_alone_hides_nothing(here: Path) -> None:
    assert hidden_by(import_from_here("yaml")) == ""


def test_a_module_that_is_nowhere_is_not_found(here: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        import_from_here("no_such_module_anywhere")
