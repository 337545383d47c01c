"""Fixtures of the tests of faults."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Return a function that shows a line at once: a soak takes an hour."""
    capture: Any = pytestconfig.pluginmanager.get_plugin("capturemanager")

    def write(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{line}", end="", flush=True)

    return write
