"""Runs below directories with hard names, and in an environment that few have."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.runs.short_run import short_run
from tests.paths import HARD_NAMES

pytestmark = pytest.mark.slow

LIMIT_S = 600
AGENT = """
import random

from openai import AsyncOpenAI

async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    asked = [{"role": "user", "content": "key 7"}]
    await client.chat.completions.create(model=session.model, messages=asked, max_tokens=8)
    return random.random()
"""


def test_everything_that_a_run_writes_lies_where_its_settings_say(tmp_path: Path) -> None:
    directory = tmp_path.joinpath(*HARD_NAMES)
    directory.mkdir(parents=True)
    config = short_run(directory, AGENT, steps=2)
    values = yaml.safe_load(config.read_text())
    values["weights"] = {"url": (directory / "sent").as_uri()}
    values["trainer"] |= {"metrics_csv": str(directory / "numbers" / "metrics.csv")}
    config.write_text(yaml.safe_dump(values, allow_unicode=True))

    assert "step 2/2" in seamlessflow("train", "--config", str(config))

    out = directory / "out"
    assert {path.name for path in tmp_path.iterdir()} == {HARD_NAMES[0]}
    assert {path.name for path in directory.iterdir()} >= {"out", "sent", "numbers"}
    assert (out / "kafka" / "log" / "sessions-0").is_dir()
    assert json.loads((out / "summary.json").read_text())["steps"] == 2
    assert list((directory / "sent").rglob("manifest.json"))
    assert "violations" in seamlessflow("audit", "--out", str(out))


def test_a_run_ends_well_in_an_unusual_environment(tmp_path: Path) -> None:
    scratch = tmp_path / ("t" * 120)
    scratch.mkdir()
    config = short_run(tmp_path, AGENT, steps=1, modelled=True)
    values = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**values, "gateway": {"host": "::1"}}))

    said = seamlessflow(
        "train", "--config", str(config), TMPDIR=str(scratch), PYTHONIOENCODING="ascii"
    )

    assert "step 1/1" in said
    assert list(scratch.iterdir())


def seamlessflow(*arguments: str, **variables: str) -> str:
    """Return the output of a command that ends well, in the locale of a container."""
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow", *arguments],
        cwd=Path(arguments[-1]).parent,
        env={**os.environ, "COLUMNS": "400", "LC_ALL": "C", **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
