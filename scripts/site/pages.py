"""A repository page as a page for the site: its links, its blocks and its diagrams. Pure.

Pages keep their places, so links between them stay. A link to a file that is no page leads to the
repository, or becomes text with the path as its hint if the repository has no address.
"""

import re
from collections.abc import Callable
from posixpath import dirname, join, normpath, relpath

from scripts.site.menu import Menu

_PICTURES = (".png", ".svg")
_BLOCK = re.compile(r"^(```[^\n]*\n.*?^```$)", re.M | re.S)
_LINK_OR_CODE = re.compile(r"!?\[(?P<label>[^\]]*)\]\((?P<target>[^)\s]+)\)|`[^`\n]+`")
_MERMAID = "```mermaid\n"
Draw = Callable[[str], str]
"""Stores the picture for a Mermaid source, and returns its place in the site."""


def site_page(text: str, place: str, menu: Menu, draw: Draw) -> str:
    """Return a page for the site. `place` is its path from the repository's root."""
    pieces = _BLOCK.split(text)
    # Every second piece is a fenced block.
    pieces[::2] = [_LINK_OR_CODE.sub(lambda m: _link(m, place, menu), p) for p in pieces[::2]]
    pieces[1::2] = [_block(piece, place, draw) for piece in pieces[1::2]]
    return "".join(pieces)


def _link(match: re.Match[str], place: str, menu: Menu) -> str:
    target = match["target"]
    if not target or "://" in target or target.startswith(("#", "mailto:")):
        return match[0]
    file = normpath(join(dirname(place), target.partition("#")[0]))
    if file in menu.pages or file.endswith(_PICTURES):
        return match[0]
    if menu.repository:
        return f"[{match['label']}]({menu.repository.rstrip('/')}/blob/main/{file})"
    return f'<abbr title="{file}">{match["label"]}</abbr>'


def _block(block: str, place: str, draw: Draw) -> str:
    if block.startswith(_MERMAID):
        picture = relpath(draw(block.removeprefix(_MERMAID).removesuffix("```")), dirname(place))
        return f"[![Diagram]({picture}){{ .diagram }}]({picture})"
    head, rest = block.split("\n", 1)
    # The reason behind `norun:` is for the tests of runbooks.
    return f"{head.partition(' norun:')[0]}\n{rest}"
