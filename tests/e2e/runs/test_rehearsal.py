"""A rehearsal: all processes of a run, with modelled devices that the run itself would need.

The demo's are two, by two strategies in turn, which stand in one page and in one table.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from seamlessflow.demo.rehearsed import DEVICES, STRATEGIES
from seamlessflow.infra.errors import ExitStatus
from tests import http
from tests.e2e.runs.short_run import processes_of, short_run
from tests.waiting import until

pytestmark = pytest.mark.slow

LIMIT_S = 400
STEPS = 3
DEMO_STEPS = 2
_SAYS = "its pages, while it runs: "
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


@contextmanager
def rehearsing(out: Path) -> Iterator[subprocess.Popen[str]]:
    """Start the command; kill it at the end if it goes on."""
    options = ["--rehearse", "--out", str(out), "--steps", str(DEMO_STEPS)]
    with subprocess.Popen(
        [sys.executable, "-m", "seamlessflow", "demo", *options],
        env={**os.environ, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def next_console(process: subprocess.Popen[str], said: list[str]) -> str:
    """Return the address of the next console, once its pages are there; `said` gets the lines."""
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        if _SAYS in line:
            break
    address = said[-1].partition(_SAYS)[2].strip()
    assert address, "".join(said)
    until(lambda: timeline_of(address) is not None, "the console", LIMIT_S)
    return address


def timeline_of(address: str, **query: str) -> dict[str, Any] | None:
    """Return the data of a timeline with workers, or None as long as there is none."""
    try:
        answer = http.get(f"{address}timeline.json", params=query, timeout=LIMIT_S)
    except httpx.TransportError:
        return None
    page: dict[str, Any] = answer.json().get("page", {})
    return page if len(page.get("workers", ())) == DEVICES else None


def test_both_strategies_stand_in_one_page_and_in_one_table(tmp_path: Path) -> None:
    said: list[str] = []
    (disaggregated, multiplexed) = (tmp_path / name for name in STRATEGIES)
    with rehearsing(tmp_path) as process:
        next_console(process, said)
        address = next_console(process, said)
        live = timeline_of(address)
        beside = timeline_of(address, beside=str(disaggregated))
        assert live is not None and beside is not None
        assert live["refresh_s"] > 0 == beside["refresh_s"]
        assert beside["finished"] and len(beside["steps"]) == DEMO_STEPS
        rest, _ = process.communicate(timeout=LIMIT_S)
    text = "".join(said) + rest
    # This machine may be busy with other tests: then the figures are refused, and that is said.
    assert process.returncode in (0, ExitStatus.LASTING), text
    assert (process.returncode == 0) == ("refused" not in text)
    for name in STRATEGIES:
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        assert summary["steps"] == DEMO_STEPS
        assert summary["checks"]["mismatches"] == 0
        assert (tmp_path / name / "timeline.png").exists()
    rows = {line.split()[0]: line.split()[1] for line in rest.splitlines() if line.split()}
    assert [rows[name] for name in STRATEGIES] == [str(DEMO_STEPS)] * 2
    assert f"seamlessflow console --out {multiplexed} --beside {disaggregated}" in rest


def test_ctrl_c_ends_everything_in_order(tmp_path: Path) -> None:
    said: list[str] = []
    (first, second) = (tmp_path / name for name in STRATEGIES)
    with rehearsing(tmp_path) as process:
        next_console(process, said)
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "stopped as asked; the rehearsal so far is in" in rest
    assert not second.exists()
    assert list(processes_of(first, "-m")) == []
