"""Stages the site for zensical: `python -m scripts.site`. Called by scripts/docs."""

import shutil
import sys
from hashlib import sha256
from pathlib import Path

from scripts.site import diagrams
from scripts.site.menu import GENERATED, faults, read_menu
from scripts.site.pages import site_page
from scripts.site.reference import commands, gateway, metrics, records, settings, topics

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "build" / "pages"
REFERENCE = (commands, gateway, metrics, records, settings, topics)
"""Modules that make a page of the same name from the code."""


def main() -> None:
    """Write all pages of the menu, their pictures and the style sheet."""
    menu = read_menu(ROOT / "zensical.toml")
    if lines := faults(menu, ROOT):
        sys.exit("\n".join(lines))
    shutil.rmtree(PAGES, ignore_errors=True)
    for place in menu.written():
        text = (ROOT / place).read_text(encoding="utf-8")
        _write(PAGES / place, site_page(text, place, menu, _draw))
    for module in REFERENCE:
        _write(PAGES / GENERATED / f"{module.__name__.rpartition('.')[2]}.md", module.page())
    shutil.copytree(ROOT / "docs" / "images", PAGES / "docs" / "images")
    shutil.copy(ROOT / "scripts" / "site" / "site.css", PAGES)


def _draw(source: str) -> str:
    place = f"diagrams/{sha256(source.encode()).hexdigest()[:12]}.svg"
    # Drawing takes a second, so pictures outlive the pages.
    kept = PAGES.parent / place
    if not kept.exists():
        _write(kept, diagrams.svg(source))
    _write(PAGES / place, kept.read_text(encoding="utf-8"))
    return place


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
