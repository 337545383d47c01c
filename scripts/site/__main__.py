"""Stages the site for zensical, in build/pages: `python -m scripts.site`. Called by scripts/docs."""

import shutil
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import mermaidx

from scripts.site.menu import GENERATED, Menu, MenuWrong, check, read_menu
from scripts.site.pages import pictures, site_page
from scripts.site.reference import commands, gateway, metrics, records, settings, topics

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "build" / "pages"
REFERENCE: Mapping[str, Callable[[], str]] = {
    f"{GENERATED}settings.md": settings.page,
    f"{GENERATED}commands.md": commands.page,
    f"{GENERATED}records.md": records.page,
    f"{GENERATED}topics.md": topics.page,
    f"{GENERATED}metrics.md": metrics.page,
    f"{GENERATED}gateway.md": gateway.page,
}
"""Pages that are made from the code."""


def main() -> None:
    """Write all pages of the menu, their pictures and the style sheet."""
    menu = read_menu(ROOT / "zensical.toml")
    check(menu, ROOT)
    shutil.rmtree(PAGES, ignore_errors=True)
    for place in menu.written():
        _stage(place, menu)
    for place, page in REFERENCE.items():
        _write(place, page())
    shutil.copy(ROOT / "scripts" / "site" / "site.css", PAGES)


def _stage(place: str, menu: Menu) -> None:
    text = (ROOT / place).read_text(encoding="utf-8")
    _write(place, site_page(text, place, menu, _draw))
    for picture in pictures(text, place):
        (PAGES / picture).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / picture, PAGES / picture)


def _draw(source: str) -> str:
    place = f"diagrams/{sha256(source.encode()).hexdigest()[:12]}.svg"
    _write(place, mermaidx.render(source).svg())
    return place


def _write(place: str, text: str) -> None:
    (PAGES / place).parent.mkdir(parents=True, exist_ok=True)
    (PAGES / place).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except MenuWrong as error:
        sys.exit(str(error))
