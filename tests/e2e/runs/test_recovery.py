"""A run whose processes are killed, one after the other, as a machine without memory does it."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.runs.short_run import processes_of, short_run
from tests.waiting import until

pytestmark = pytest.mark.soak

LIMIT_S = 300
STEPS = 16
AGENT = """
from openai import AsyncOpenAI

async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    answer = await client.chat.completions.create(
        model=session.model, max_tokens=8, messages=[{"role": "user", "content": "key 7"}]
    )
    return len(answer.choices[0].message.content or "") % 3
"""
KILLED = {
    "gateway": "seamlessflow.producers.gateway",
    "manager": "seamlessflow.consumers.trajectories",
    "rollout-w0": "seamlessflow.producers.rollout",
    "scheduler": "seamlessflow.scheduler",
    "trainer": "seamlessflow.trainer",
    "trainer-w1": "seamlessflow.trainer.ranks",
    "agents": "seamlessflow.producers.agents",
    "broker": "kafka.Kafka",
}
"""Processes in the order of their deaths, with a word of their command lines."""


def steps_made(out: Path) -> int:
    """Return the number of the newest step in the metrics."""
    try:
        with (out / "metrics.csv").open(encoding="utf-8") as rows:
            return max((int(row["step"]) for row in csv.DictReader(rows)), default=0)
    except FileNotFoundError:
        return 0


def test_a_run_reaches_its_steps_although_each_of_its_processes_is_killed_once(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    config = short_run(tmp_path, AGENT, steps=STEPS)
    command = [sys.executable, "-m", "seamlessflow", "train", "--config", str(config)]
    environment = {**os.environ, "COLUMNS": "200"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            for word in KILLED.values():
                made = steps_made(out)
                until(lambda made=made: steps_made(out) > made, "a step", LIMIT_S)  # type: ignore[misc]
                process = next(processes_of(out, word), None)
                assert process is not None, word
                os.kill(process, signal.SIGKILL)
            said, _ = running.communicate(timeout=LIMIT_S)
        finally:
            running.kill()
    assert running.returncode == 0, said
    summary = json.loads((out / "summary.json").read_text())
    assert summary["steps"] == STEPS
    assert set(summary["restarts"]) == set(KILLED)
    checks = summary["checks"]
    assert checks["tokens_checked"] == summary["tokens_trained"] > 0
    assert (checks["mismatches"], checks["trained_twice"]) == (0, 0)
    for name in KILLED:
        assert f"! {name} was ended by signal 9 (Killed); it starts again" in said
