"""The pages of Start, held to the examples and to the code."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from scripts.site.reference.commands import commands
from seamlessflow.config_file import read
from tests.integration.runbooks.commands import blocks
from tests.paths import ROOT

PAGES = sorted((ROOT / "docs" / "start").glob("*.md"))
EXAMPLES = [path.read_text() for path in (ROOT / "examples").rglob("*.py")]
JSON = re.compile(r"^```json\n.*?^```$", re.M | re.S)
page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)


def fenced(page: Path, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", page.read_text(), re.M | re.S)


def calls(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command of the page."""
    for block in blocks(JSON.sub("", page.read_text())):
        # A reader may try all of them, but they need a machine, a run or a cluster.
        assert block.reason
        for command in block.commands:
            yield shlex.split(command.text)


@page
def test_a_page_says_for_whom_it_is_and_is_short(page: Path) -> None:
    text = page.read_text()
    assert re.search(r"^This page is for a person .*\?$", text, re.M)
    assert len(text.split()) < 400


@page
def test_each_command_exists_with_its_options(page: Path) -> None:
    options = {
        name: {opt for p in command.params for opt in p.opts} for name, command in commands()
    }
    for words in calls(page):
        if words[0].endswith("/seamlessflow"):
            assert {word for word in words if word.startswith("--")} <= options[words[1]]
        elif words[0].startswith("scripts/"):
            assert (ROOT / words[0]).is_file()


@page
def test_each_python_block_is_of_an_example(page: Path) -> None:
    written = [block for block in fenced(page, "python") if "..." not in block]
    assert [block for block in written if not any(block in example for example in EXAMPLES)] == []


@page
def test_each_yaml_block_has_settings_that_exist(page: Path) -> None:
    for block in fenced(page, "yaml"):
        reading = read({"policy": {"model": "model"}, **yaml.safe_load(block)})
        assert reading.lines == [], block
