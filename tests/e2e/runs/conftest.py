"""The demo, run once for all tests that look at it or need its model."""

from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.e2e.demo_run import ended_demo


@pytest.fixture(scope="session")
def traced_demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Span]]:
    """Return the directory of a short demo that has ended, and the spans that it exported."""
    out = tmp_path_factory.mktemp("demo") / "out"
    return out, ended_demo(out)


@pytest.fixture(scope="session")
def demo(traced_demo: tuple[Path, list[Span]]) -> Path:
    """Return the directory of the demo."""
    return traced_demo[0]
