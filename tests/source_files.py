"""The Python files of the project, for tests that read code."""

import ast
from functools import cache
from pathlib import Path

from tests.paths import ROOT

PRODUCT = (
    "schemas",
    "infra",
    "producers",
    "consumers",
    "scheduler",
    "trainer",
    "recorded",
    "lab",
    "console",
    "seamlessflow",
)


def modules(*folders: str) -> list[Path]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in paths if path.name != "__init__.py"]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file, which stays in memory until `parsed.cache_clear()`."""
    return ast.parse(path.read_text())
