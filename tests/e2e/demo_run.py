"""A short run of the demo, as a user starts it, and commands on it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.builders.traces.collector import collector

STEPS = 3
_LIMIT_S = 600


def ended_demo(out: Path) -> list[Span]:
    """Run the demo to its end; return the spans that it exported."""
    with collector() as (endpoint, spans), pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        done = seamlessflow("demo", "--out", str(out), "--steps", str(STEPS))
    assert done.returncode == 0, done.stdout + done.stderr
    return spans


def seamlessflow(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-m", "seamlessflow", *arguments]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=_LIMIT_S, env=environment, check=False
    )
