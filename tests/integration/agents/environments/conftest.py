"""Adapters that tests write."""

import os
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.producers.agents.environments.child import EnvironmentSpec
from tests.integration.agents.environments.playing import Start


@pytest.fixture
def adapter(tmp_path: Path) -> Start:
    """Return a function that writes an adapter's class body and returns how it is started."""

    def written(
        body: str, settings: Mapping[str, Any] | None = None, **variables: str
    ) -> EnvironmentSpec:
        file = tmp_path / "adapter.py"
        lines = textwrap.indent(textwrap.dedent(body), "    ")
        file.write_text(f"import asyncio, os, subprocess, sys, time\n\nclass Environment:{lines}")
        environment = {**os.environ, **variables}
        python, log_file = Path(sys.executable), tmp_path / "environment.log"
        return EnvironmentSpec("mine", python, file, settings or {}, environment, log_file)

    return written
