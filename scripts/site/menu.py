"""The site's menu, as `zensical.toml` has it, and the pages that it must have."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

GENERATED = "reference/"
"""Folder in the site whose pages are made from the code."""
_FOLDERS = ("docs", "runbooks")


class Menu(NamedTuple):
    """The menu's pages in order, and the repository's address, or an empty string."""

    pages: tuple[str, ...]
    repository: str

    def written(self) -> tuple[str, ...]:
        """Return the pages that are files in the repository."""
        return tuple(page for page in self.pages if not page.startswith(GENERATED))


def read_menu(config: Path) -> Menu:
    """Return the menu from a configuration file."""
    project = tomllib.loads(config.read_text(encoding="utf-8"))["project"]
    return Menu(tuple(_pages(project["nav"])), project.get("repo_url", ""))


def faults(menu: Menu, root: Path) -> list[str]:
    """Return a line for each page in docs/ and runbooks/ that is not in the menu exactly once."""
    files = {
        file.relative_to(root).as_posix()
        for folder in _FOLDERS
        for file in (root / folder).rglob("*.md")
    }
    lines = [f"{page}: not in the menu of zensical.toml" for page in sorted(files - {*menu.pages})]
    lines += [f"{page}: twice in the menu" for page in menu.pages if menu.pages.count(page) > 1]
    lines += [f"{page}: no such page" for page in menu.written() if not (root / page).is_file()]
    return lines


def _pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
        return
    for inner in entry.values() if isinstance(entry, dict) else entry:
        yield from _pages(inner)
