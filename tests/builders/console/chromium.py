"""Pages in a real Chromium: opened, and watched for errors and for requests that leave the host."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page

Theme = Literal["light", "dark"]
LIMIT_MS = 30_000
WIDE = 1_440
NARROW = 390


@dataclass
class WatchedPage:
    """A page, and what went wrong on it."""

    page: Page
    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    """Hosts of all requests."""

    def open(self, url: str) -> None:
        """Go to a page of a session, and wait for its tokens."""
        self.page.goto("about:blank")
        self.page.goto(url)
        self.page.wait_for_selector("html[data-tokens-ready]")


@contextmanager
def watched(browser: Browser, width: int = WIDE, theme: Theme = "light") -> Iterator[WatchedPage]:
    """Open a page of this width and theme."""
    context = browser.new_context(
        color_scheme=theme, viewport={"width": width, "height": 900}, reduced_motion="reduce"
    )
    context.set_default_timeout(LIMIT_MS)
    page = context.new_page()
    watch = WatchedPage(page)
    page.on("pageerror", lambda error: watch.errors.append(str(error)))
    page.on("console", lambda line: _note(watch, line.type, line.text))
    page.on("request", lambda request: watch.hosts.add(urlsplit(request.url).hostname or ""))
    yield watch
    context.close()


def _note(watch: WatchedPage, kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        watch.errors.append(text)
