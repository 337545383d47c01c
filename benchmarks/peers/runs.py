"""The sides' runs in their own processes, watched from outside in the same way."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.load.children import ROOT
from benchmarks.peers import ours
from benchmarks.peers.result import StepEnd, Usage, as_json, measured_steps
from benchmarks.peers.shape import WARM_UP, Work
from benchmarks.peers.usage import ProcessTree
from seamlessflow.infra.child import tied

TRL = "trl"
VLLM = "vllm"
SIDES = (TRL, *ours.SIDES)
_VENV = ROOT / os.environ.get("SEAMLESSFLOW_PEERS_VENV", ".venv-peers")
_STEPS_FILE = "steps.jsonl"
_LOOK_S = 0.25
_LIMIT_S = 3600.0
_END_S = 60.0
_SCRIPT_S = 1800.0
"""Longest time for a script that installs something, or for the machine's measurement."""


class SideFailed(Exception):
    """A reason for which a side has no result."""


def prepare(sides: Iterable[str]) -> None:
    """Make the environments that the sides need. Raises `SideFailed`."""
    scripts = {TRL: "scripts/peers", VLLM: "scripts/vllm-cpu"}
    for script in (scripts[side] for side in sides if side in scripts):
        _output([str(ROOT / script)])


def real_model() -> Path:
    """Return SmolLM2-135M's directory, which is made if it is missing.

    Raises `SideFailed`.
    """
    return Path(_output([str(ROOT / "scripts/real-model")]).strip())


def measured_machine(threads: int) -> Mapping[str, Any]:
    """Return the speed of this machine's products and memory. Raises `SideFailed`."""
    printed = _output([sys.executable, "-m", "benchmarks.peers.machine", str(threads)])
    speeds: Mapping[str, Any] = json.loads(printed)
    return speeds


def _output(command: Sequence[str]) -> str:
    """Return what a program prints. Raises `SideFailed`."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=_SCRIPT_S
        )
    except subprocess.TimeoutExpired as error:
        raise SideFailed(f"{command[0]} did not end within {_SCRIPT_S:g} s") from error
    if done.returncode:
        raise SideFailed(f"{' '.join(command)} ended with status {done.returncode}")
    return done.stdout


def commit() -> str:
    """Return this project's commit. Raises `SideFailed`."""
    return _output(["git", "rev-parse", "--short", "HEAD"]).strip()


def measured_run(side: str, work: Work) -> Mapping[str, Any]:
    """Run a side from the beginning; return its result. Raises `SideFailed`."""
    out = Path(work.out)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    if side == TRL:
        usages = _watched(_trl_command(work), "TRL's trainer")
        ends = _trl_ends(out / _STEPS_FILE)
        version = _trl_version()
    else:
        config = ours.write_run(work, side)
        command = [sys.executable, "-m", "seamlessflow", "train", "--config", str(config)]
        usages = _watched(command, "seamlessflow train")
        ends = ours.read_ends(work, side)
        version = f"SeamlessFlow {commit()}"
    if len(ends) < WARM_UP + work.steps:
        raise SideFailed(f"{side} made {len(ends)} steps of {WARM_UP + work.steps}")
    return as_json(side, version, measured_steps(ends[WARM_UP - 1 :], usages), usages)


def _trl_command(work: Work) -> list[str]:
    orders = json.dumps(asdict(work))
    return [str(_VENV / "bin/python"), "-m", "benchmarks.peers.trl_side", orders]


def _trl_ends(file: Path) -> list[StepEnd]:
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [StepEnd(**json.loads(line)) for line in lines]


def _trl_version() -> str:
    (installed,) = (_VENV / "lib").glob("python*/site-packages/trl-*.dist-info")
    return installed.name.removesuffix(".dist-info").replace("-", " ")


def _watched(command: Sequence[str], title: str) -> list[Usage]:
    """Run a program to its end; return its use of the machine over time. Raises `SideFailed`."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(tied(command), cwd=ROOT, env=environment, stdout=sys.stderr)
    tree = ProcessTree(process.pid)
    usages = [tree.look()]
    until_s = time.monotonic() + _LIMIT_S
    try:
        while process.poll() is None:
            if time.monotonic() > until_s:
                raise SideFailed(f"{title} did not end within {_LIMIT_S:g} s")
            time.sleep(_LOOK_S)
            usages.append(tree.look())
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(_END_S)
    if process.returncode:
        raise SideFailed(f"{title} ended with status {process.returncode}")
    return usages
