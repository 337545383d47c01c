"""A run of two policies that answer the two modules of one agent, each with its own trainer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from seamlessflow.auditing.audit import audit
from seamlessflow.processes.cluster import kafka_to_audit
from tests.e2e.runs.short_run import short_run
from tests.paths import ROOT
from trainer.steps.trained import read_trained

pytestmark = pytest.mark.slow

LIMIT_S = 400
STEPS = 2
AGENT = """
from openai import AsyncOpenAI

PROMPTS = {"one": "key 7", "two": "key 8"}

async def run(task, session):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    length = 0
    for module, prompt in PROMPTS.items():
        answer = await client.chat.completions.create(
            model=session.model,
            max_tokens=8,
            messages=[{"role": "user", "content": prompt}],
            extra_headers={"x-seamlessflow-module": module},
        )
        length += len(answer.choices[0].message.content or "")
    return length / 16
"""


def trained(folder: Path) -> set[tuple[str, str, int]]:
    """Return the trained tokens in a folder as (session, turn, offset)."""
    return {
        (run.session, run.turn, run.offset + place)
        for path in folder.glob("step-*.jsonl.gz")
        for run in read_trained(path)[1]
        for place in range(len(run.ids))
    }


def test_each_policy_trains_its_own_tokens_of_the_sessions_that_both_answer(
    tmp_path: Path,
) -> None:
    config = short_run(tmp_path, AGENT, steps=STEPS)
    values = yaml.safe_load(config.read_text())
    workers = [{"id": name, "tags": ["rollout", "train"]} for name in ("w0", "w1")]
    values |= {
        "workers": [workers[0], {**workers[1], "policy": "second"}],
        "policies": {"second": {"trainer": {"seed": 1}}},
    }
    values["agents"]["modules"] = {"two": "second"}
    config.write_text(yaml.safe_dump(values))
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow", "train", "--config", str(config)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"second: step {STEPS}/{STEPS}" in done.stdout

    out = tmp_path / "out"
    figures = json.loads((out / "summary.json").read_text())
    assert {name: of["steps"] for name, of in figures["policies"].items()} == {
        "policy": STEPS,
        "second": STEPS,
    }
    assert figures["checks"]["mismatches"] == figures["checks"]["trained_twice"] == 0
    assert (out / "policies" / "second" / "weights" / "final").is_dir()

    first, second = trained(out / "trained"), trained(out / "trained" / "second")
    assert first and second and not first & second
    sessions = [{session for session, _, _ in one} for one in (first, second)]
    assert sessions[0] & sessions[1], "both trained parts of the same sessions"
    assert {turn for _, turn, _ in first}.isdisjoint(turn for _, turn, _ in second)

    with kafka_to_audit(out) as kafka:
        report = audit(kafka, out / "trained")
    assert report.clean
    (groups,) = (one for one in report.results if one.check == "groups")
    assert not groups.open, "all credits are returned"
