"""Functions of the user's own: imported from the working directory last, and told by their file."""

import hashlib
import sys
from pathlib import Path

import pytest

from seamlessflow.infra.user_functions import (
    FunctionUnusable,
    chosen,
    hidden_by,
    import_from_here,
    load_function,
    refuse_unnamed,
    source_sha256,
)


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


def test_a_name_is_a_built_in_function_or_the_user_s_with_its_settings(here: Path) -> None:
    (here / "chosen_of_this_test.py").write_text("def power(base, *, by=2): return base**by")
    table = {"double": lambda value: 2 * value}
    settings = {"chosen_of_this_test:power": {"by": 3}}
    assert chosen(table, "double", settings)(5) == 10
    assert chosen(table, "chosen_of_this_test:power", settings)(5) == 125
    assert chosen(table, "chosen_of_this_test:power", {})(5) == 25


def test_a_function_is_told_by_the_hash_of_its_file(here: Path) -> None:
    text = b"def f(): ..."
    (here / "hashed_of_this_test.py").write_bytes(text)
    assert source_sha256("hashed_of_this_test:f") == hashlib.sha256(text).hexdigest()
    assert source_sha256("grpo") == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 / 0", "line 1: ZeroDivisionError: division by zero"),
        ("\nimport sys\nsys.exit(3)", "line 3: SystemExit: 3"),
        ("import no_such_library", "line 1: No module named 'no_such_library'"),
        (
            "import json\n\njson.loads('x')",
            "line 3: JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        ),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_file_and_line(
    here: Path, text: str, reason: str
) -> None:
    name = f"wrong_{abs(hash(text))}"
    (here / f"{name}.py").write_text(text)
    with pytest.raises(FunctionUnusable) as refused:
        load_function(f"{name}:f")
    assert refused.value.reason == f"cannot be imported: {here / name}.py, {reason}"
    assert not refused.value.absent


def test_what_is_absent_is_told_apart_from_what_fails(here: Path) -> None:
    (here / "partly_of_this_test.py").write_text("value = 3")
    for name in ("no_such_module:f", "partly_of_this_test:f", "partly_of_this_test:value"):
        with pytest.raises(FunctionUnusable) as refused:
            load_function(name)
        assert refused.value.absent


def test_settings_of_a_function_that_is_not_named_are_refused() -> None:
    refuse_unnamed({"mine:f": {}}, ["grpo", "mine:f"], "trainer.advantage")
    with pytest.raises(ValueError, match=r"settings for mine:g, which trainer.advantage does not"):
        refuse_unnamed({"mine:f": {}, "mine:g": {}}, ["mine:f"], "trainer.advantage")
