"""A real Chromium that looks at a console."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.builders.console.content import run_items
from tests.builders.console.served import Served, served

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Return the browser's program; a test that needs it is never skipped."""
    named = os.environ.get("SEAMLESSFLOW_TEST_CHROMIUM")
    paths = [named] if named else [path for name in NAMES if (path := shutil.which(name))]
    if not paths:
        pytest.fail("no Chromium: scripts/test-browser installs Debian's package chromium")
    return paths[0]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Yield the browser that all tests share."""
    with sync_playwright() as playwright:
        # Its sandbox needs rights that containers and root do not give.
        started = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def console() -> Iterator[Served]:
    """Yield a console of a run with everything that a page shows."""
    with served(run_items()) as made:
        yield made


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    """Return the directory for pictures; SEAMLESSFLOW_TEST_SCREENSHOTS names one that stays."""
    named = os.environ.get("SEAMLESSFLOW_TEST_SCREENSHOTS")
    folder = Path(named) if named else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    return folder
