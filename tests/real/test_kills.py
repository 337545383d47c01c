"""The demo with a real model, whose processes are killed ten times on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seamlessflow.processes.cluster import kafka_to_audit
from seamlessflow.processes.stopping import Stop
from tests.algorithms.checks import audit_faults, log_faults
from tests.algorithms.whole_run import steps_made
from tests.e2e.runs.short_run import processes_of

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.kafka]

STEPS = 26
KINDS = (
    "seamlessflow.producers.gateway",
    "seamlessflow.consumers.trajectories",
    "seamlessflow.producers.rollout",
    "seamlessflow.producers.agents",
    "seamlessflow.scheduler",
    "seamlessflow.trainer.ranks",
    "seamlessflow.trainer",
    "seamlessflow.producers.rollout",
    "seamlessflow.trainer",
    "seamlessflow.consumers.trajectories",
)
STEPS_BETWEEN = 2
LIMIT_S = 1800.0
STEPS_S = 400.0
"""Most time of two steps and a start of the process that was killed, on a busy machine."""
POLL_S = 0.1


def test_ten_kills_lose_and_double_nothing_and_repeat_their_steps_to_the_digit(
    smollm2: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ["--real", str(smollm2), "--out", str(out), "--steps", str(STEPS)]
    with (tmp_path / "printed.txt").open("wb") as printed:
        demo = subprocess.Popen(
            [sys.executable, "-m", "seamlessflow", "demo", *options],
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            for number, kind in enumerate(KINDS):
                _wait_for(1 + number * STEPS_BETWEEN, out, demo)
                for process in processes_of(out, kind):
                    os.kill(process, signal.SIGKILL)
                print(f"step {steps_made(out)}: killed {kind}", flush=True)
            status = demo.wait(LIMIT_S)
        finally:
            if demo.poll() is None:
                demo.send_signal(signal.SIGINT)
                demo.wait(LIMIT_S)
    assert status == 0, (tmp_path / "printed.txt").read_text()[-3000:]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["steps"] == STEPS
    assert (summary["checks"]["mismatches"], summary["checks"]["trained_twice"]) == (0, 0)
    assert sum(summary["restarts"].values()) >= len(KINDS)
    with kafka_to_audit(out) as kafka:
        assert list(log_faults(kafka, "demo")) == []
        assert list(audit_faults(kafka, out)) == []


def _wait_for(steps: int, out: Path, demo: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + STEPS_S
    stop = Stop()
    while steps_made(out) < steps:
        assert demo.poll() is None, "the demo has ended"
        assert time.monotonic() < deadline, f"no step {steps} within {STEPS_S:g} s"
        stop.wait(POLL_S)
