"""The menu of the site."""

from pathlib import Path

import pytest

from scripts.site.__main__ import REFERENCE
from scripts.site.menu import GENERATED, Menu, faults, read_menu
from tests.paths import ROOT

MENU = read_menu(ROOT / "zensical.toml")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a repository with two pages."""
    for place in ("docs/a.md", "runbooks/b.md"):
        (tmp_path / place).parent.mkdir()
        (tmp_path / place).write_text("# Page\n")
    return tmp_path


def test_each_page_of_the_repository_is_in_the_menu_once() -> None:
    assert faults(MENU, ROOT) == []


def test_each_page_from_the_code_is_in_the_menu() -> None:
    made = {f"{GENERATED}{module.__name__.rpartition('.')[2]}.md" for module in REFERENCE}
    assert made == set(MENU.pages) - set(MENU.written())


def test_a_menu_with_all_pages_has_no_fault(root: Path) -> None:
    assert faults(Menu(("docs/a.md", "runbooks/b.md", "reference/made.md"), ""), root) == []


def test_a_page_that_the_menu_lacks_is_a_fault(root: Path) -> None:
    assert faults(Menu(("docs/a.md",), ""), root) == [
        "runbooks/b.md: not in the menu of zensical.toml"
    ]


def test_a_page_that_does_not_exist_is_a_fault(root: Path) -> None:
    menu = Menu(("docs/a.md", "runbooks/b.md", "docs/gone.md"), "")
    assert faults(menu, root) == ["docs/gone.md: no such page"]


def test_a_page_in_two_places_is_a_fault(root: Path) -> None:
    menu = Menu(("docs/a.md", "runbooks/b.md", "docs/a.md"), "")
    assert "docs/a.md: twice in the menu" in faults(menu, root)


def test_nothing_of_another_host_is_switched_on() -> None:
    config = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    assert "font = false" in config
    # It adds a script of a content delivery network to each page.
    assert "plugins.offline" not in config
