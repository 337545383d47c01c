"""Runs beside modules and packages that have the names of ours: neither hides the other."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.runs.short_run import short_run
from tests.paths import ROOT

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


def train(python: Path | str, config: Path) -> None:
    """Train to the end with the Python of an environment."""
    done = subprocess.run(
        [python, "-m", "seamlessflow", "train", "--config", config],
        cwd=config.parent,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trained  2 steps" in done.stdout


def installed(folder: Path) -> Path:
    """Make an environment with a wheel of this project; return its Python."""
    uv = Path(sys.executable).with_name("uv")
    python = folder / "venv" / "bin" / "python"
    install: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", python]
    lock: list[str | Path] = [
        "--require-hashes",
        "--requirements",
        ROOT / "requirements" / "train.txt",
    ]
    build: list[str | Path] = [
        uv,
        "build",
        "--quiet",
        "--wheel",
        "--no-build-isolation",
        "--python",
        sys.executable,
    ]
    subprocess.run([*build, "--out-dir", folder / "wheel", ROOT], check=True)
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder / "venv"], check=True)
    subprocess.run([*install, *lock], check=True)
    subprocess.run([*install, "--no-deps", *(folder / "wheel").glob("*.whl")], check=True)
    return python


def test_modules_of_these_names_hide_none_of_ours_and_ours_none_of_them(tmp_path: Path) -> None:
    fill(tmp_path)
    train(sys.executable, short_run(tmp_path, AGENT, steps=2))


def test_packages_of_these_names_stand_beside_an_installed_wheel(tmp_path: Path) -> None:
    python = installed(tmp_path / "installed")
    (packages,) = (tmp_path / "installed" / "venv" / "lib").glob("python*/site-packages")
    fill(packages)
    run = tmp_path / "run"
    run.mkdir()
    train(python, short_run(run, AGENT, steps=2))
