"""Terms of docs/glossary.md, held to one thing each."""

import ast
import re

from seamlessflow.schemas.registry import raw_schemas
from tests.paths import ROOT
from tests.source_files import modules, name

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()


NOT = {
    "agent": ("harness", "consumers", "trainer", "scheduler"),
    "staleness": ("lag", "trainer.data"),
    "member": ("slot", "consumers.trajectories"),
    "row of a KV cache": ("slot", "producers.rollout.torch_engine"),
    "activity": ("usage", "infra", "producers.rollout", "trainer"),
    "waste": ("plan", "scheduler"),
}
"""By thing, a word that is no name for it in these packages: there it is another thing, or none."""


def rows() -> list[list[str]]:
    """The cells of each term: term, meaning, records."""
    lines = [line for line in GLOSSARY.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "term" and not row[0].startswith("---")]


def words_of(identifier: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower()))


def named_with(word: str, package: str) -> list[str]:
    """Modules, classes and functions of a package whose name has the word."""
    names = []
    for path in modules(package.replace(".", "/")):
        if word in words_of(path.stem):
            names.append(name(path))
        for node in ast.walk(ast.parse(path.read_text())):
            kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            if isinstance(node, kinds) and word in words_of(node.name):
                names.append(f"{name(path)}:{node.lineno} {node.name}")
    return names


def test_every_term_is_explained_once() -> None:
    terms = [row[0] for row in rows()]
    assert 40 <= len(terms) <= 50
    assert sorted(set(terms)) == sorted(terms)
    assert [row[0] for row in rows() if not row[1]] == []


def test_every_record_named_exists() -> None:
    schemas = raw_schemas()
    named = {record.strip() for row in rows() for record in row[2].split(",")} - {""}
    assert named - set(schemas) == set()


def test_a_thing_has_no_second_name() -> None:
    wrong = [
        f"{place} is a {thing}"
        for thing, (word, *packages) in NOT.items()
        for package in packages
        for place in named_with(word, package)
    ]
    assert wrong == []
