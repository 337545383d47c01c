"""The menu of the site, as `zensical.toml` has it, and the pages that it must have."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

GENERATED = "reference/"
"""Folder of the site whose pages are made from the code."""
_FOLDERS = ("docs", "runbooks")


class Menu(NamedTuple):
    """Pages of the menu in their order, and the address of the repository, or an empty string."""

    pages: tuple[str, ...]
    repository: str

    def written(self) -> tuple[str, ...]:
        """Return the pages that are files of the repository."""
        return tuple(page for page in self.pages if not page.startswith(GENERATED))


class MenuWrong(Exception):
    """A page that is not in the menu, is in it twice, or does not exist."""


def read_menu(config: Path) -> Menu:
    """Return the menu of a configuration file."""
    project = tomllib.loads(config.read_text(encoding="utf-8"))["project"]
    return Menu(tuple(_pages(project["nav"])), project.get("repo_url", ""))


def check(menu: Menu, root: Path) -> None:
    """Raise `MenuWrong` unless each page of docs/ and runbooks/ is in the menu once."""
    files = {
        file.relative_to(root).as_posix()
        for folder in _FOLDERS
        for file in (root / folder).rglob("*.md")
    }
    faults = [f"{page}: not in the menu of zensical.toml" for page in sorted(files - {*menu.pages})]
    faults += [f"{page}: twice in the menu" for page in menu.pages if menu.pages.count(page) > 1]
    faults += [f"{page}: no such page" for page in menu.written() if not (root / page).is_file()]
    if faults:
        raise MenuWrong("\n".join(faults))


def _pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values():
                yield from _pages(inner if isinstance(inner, list) else [inner])
