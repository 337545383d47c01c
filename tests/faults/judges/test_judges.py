"""A run with an environment package and judges, whose processes of all these kinds are killed."""

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seamlessflow.producers.agents.environments.child import EnvironmentSpec
from seamlessflow.producers.agents.environments.known import KNOWN
from seamlessflow.producers.agents.environments.listing import write_tasks
from seamlessflow.producers.agents.environments.venvs import directory, is_installed
from tests.faults.driver import Driver
from tests.faults.faulty_run import faulty_run
from tests.faults.judges.recorded import recorded_judgements
from tests.faults.judges.settings import ENVIRONMENT, TOKENS, changes
from tests.faults.judges.victims import (
    CHILD,
    Victims,
    judge_server,
    started_with,
)
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
KILLS = int(os.environ.get("SEAMLESSFLOW_TEST_KILLS", "300"))
ROUND = 10
"""Kills until all has to be well again, and the log is audited."""
LEFT_S = 30.0
PACKAGES: dict[str, Any] = {
    "datasets": ["chain_sum", "basic_arithmetic"],
    "size": 200,
    "max_tokens": TOKENS,
}


def test_each_session_has_each_judges_reward_once_and_nothing_is_left(
    tmp_path: Path,
    rng: random.Random,
    say: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folders = tmp_path / "tmp"
    folders.mkdir()
    monkeypatch.setenv("TMPDIR", str(folders))
    tasks = listed_tasks(tmp_path)
    with (
        judge_server() as model,
        faulty_run(tmp_path, changes=changes(tasks, PACKAGES, model.url)) as run,
    ):
        driver = Driver(run, say)
        driver.start()
        victims = Victims(run, model, tmp_path)
        while victims.killed.total() < KILLS:
            for _ in range(min(ROUND, KILLS - victims.killed.total())):
                victims.kill(rng)
            driver.await_well()
            driver.audit()
            say(f"{victims.killed.total()} kills: {dict(victims.killed)}")
        driver.finish()
        recorded = recorded_judgements(run.kafka)
        run.launcher.end([name for name in run.launcher.running if name.startswith("rewards-")])
        # The gateway and the rest hold no episode.
        left = [str(file) for file in folders.glob("environment-*")]
        children = victims.present(CHILD)
    for what, count in sorted(recorded.counts().items()):
        say(f"{count} {what}")
    assert list(recorded.faults()) == []
    assert (left, children) == ([], [])
    assert recorded.trained, "nothing was trained"
    until(lambda: not started_with(tmp_path), "the end of all processes", LEFT_S)


def listed_tasks(folder: Path) -> Path:
    """Return a file with the tasks that the environment lists."""
    package = KNOWN[ENVIRONMENT]
    assert is_installed(package), f"seamlessflow environments install {ENVIRONMENT}"
    python = directory(package) / "bin" / "python"
    log = folder / "listing.log"
    spec = EnvironmentSpec(ENVIRONMENT, python, package.adapter, PACKAGES, os.environ, log)
    file = folder / "listed.jsonl"
    asyncio.run(write_tasks(spec, file, print))
    return file
