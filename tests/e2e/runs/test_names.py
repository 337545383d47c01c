"""A run in a directory whose modules have the names of ours: neither hides the other."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.runs.short_run import short_run

pytestmark = pytest.mark.slow

LIMIT_S = 400
NAMES = ("trainer", "infra", "scheduler", "producers", "consumers", "json_form", "train")
AGENT = """
import infra, scheduler, schemas, trainer
from openai import AsyncOpenAI
from schemas.answers import reward

assert {infra.MINE, scheduler.MINE, trainer.MINE} == {"mine"}


async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    answer = await client.chat.completions.create(
        model=session.model, max_tokens=8, messages=[{"role": "user", "content": "key 7"}]
    )
    return reward(answer.choices[0].message.content or "")
"""


def fill(directory: Path) -> None:
    """Write modules and a package with names of ours."""
    for name in NAMES:
        (directory / f"{name}.py").write_text('MINE = "mine"\n')
    package = directory / "schemas"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "answers.py").write_text("def reward(text):\n    return len(text) % 3\n")


def test_modules_of_these_names_hide_none_of_ours_and_ours_none_of_them(tmp_path: Path) -> None:
    fill(tmp_path)
    config = short_run(tmp_path, AGENT, steps=2)
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow", "train", "--config", str(config)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trained  2 steps" in done.stdout
