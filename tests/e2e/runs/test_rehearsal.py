"""A rehearsal: all processes of a run, with modelled devices that the run itself would need."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamlessflow.infra.errors import ExitStatus
from tests.e2e.runs.short_run import short_run

pytestmark = pytest.mark.slow

LIMIT_S = 400
STEPS = 3
AGENT = """
import asyncio
import httpx

async def run(task, session):
    sample = int(session.session_id.split(".")[1])
    async with httpx.AsyncClient(base_url=session.base_url, timeout=60) as client:
        for _ in range(2):
            answer = await client.post(
                "/chat/completions",
                headers={"authorization": f"Bearer {session.api_key}"},
                json={"model": session.model, "messages": [{"role": "user", "content": "go"}]},
            )
            answer.raise_for_status()
    if sample == 1:  # its environment hangs
        await asyncio.Event().wait()
    return float(sample % 2)
"""


def check_lengths(out: Path, lengths: Mapping[str, Any]) -> None:
    """The hung sample of each group was stopped, and the report tells it from the others."""
    assert lengths["not_trained"]["pruned"] >= 2 * STEPS
    assert lengths["begun"]["sessions"] > lengths["trained"]["sessions"] > 0
    assert (out / "lengths.png").exists()


def test_a_run_for_sixteen_gpus_is_rehearsed_without_one(tmp_path: Path) -> None:
    config = short_run(tmp_path, AGENT, steps=STEPS)
    values = yaml.safe_load(config.read_text())
    for worker in values["workers"]:
        worker |= {"device": "cuda", "devices": list(range(8))}
    values |= {
        "trainer": {"backend": "fsdp2", "ranks": 8},
        "rollout": {"engine": "vllm"},
        "device_model": {"hardware": "H100", "model": "Qwen3-4B", "scale": 0.2},
    }
    # In each group a sample hangs for ever, and the groups complete from the others.
    values["pacing"] |= {"extra_groups": 0.5, "redundancy": 1}
    config.write_text(yaml.safe_dump(values))
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow", "rehearse", "--config", str(config)],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    out = tmp_path / "out" / "rehearsal"
    assert (out / "rehearsal.json").exists(), done.stdout + done.stderr
    report = json.loads((out / "rehearsal.json").read_text())
    # This machine may be busy with other tests: then the figures are refused, and that is said.
    trusted = done.returncode == 0
    assert trusted or done.returncode == ExitStatus.LASTING
    assert trusted == (not report["distorted"]) == ("refused" not in done.stdout)
    assert "would break first" in done.stdout
    assert report["hop_ms"]["mean"] > 0 < report["step_delay_ms"]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["steps"] == STEPS
    assert summary["device_time"]["training"] > 0
    assert summary["checks"]["mismatches"] == 0
    check_lengths(out, summary["lengths"])
    assert {"broker", "gateway", "trainer", "trainer-w1"} <= summary["processors"].keys()
    simulated = subprocess.run(
        [sys.executable, "-m", "seamlessflow", "simulate", "--from", str(out), "--steps", "4"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert simulated.returncode == 0, simulated.stdout + simulated.stderr
    measured = yaml.safe_load(simulated.stdout.partition("\n\n")[0])
    assert measured["run"] == {"groups_per_step": 2, "group_size": 4}
    assert 1 < measured["simulation"]["workload"]["turns"] <= 2
    assert measured["device_model"]["rates"]["load_s"] > 0
