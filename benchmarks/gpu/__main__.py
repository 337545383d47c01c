"""Checks of what only a GPU can show: parts that take minutes, each in its own process.

    scripts/test-gpu [--device cuda] [--small] [--minutes N] [--model DIR] [--out DIR] [PART...]

Prints one line of JSON a part, with its figures and the device, and writes each to DIR. The most
valuable parts come first: with --minutes, parts that have no time left are skipped, and the part
under way is ended. What it measured until then stays. `shapes` stands for all parts with that name.

A part that lacks something, such as vLLM, says so and is skipped. Ends with status 1 if a part
failed, 2 for a part that does not exist or a directory that cannot be used, 3 without a GPU.
`--device cpu --small` runs the same code on a CPU.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu.part import LIMIT_S, LIMITS_S, PARTS, Result, parts_named
from seamlessflow.infra.disk import make_writable
from seamlessflow.infra.errors import SettingsRejected

WRONG = 2
NO_GPU = 3
LEAST_S = 20.0
"""A part with less time is not begun: its imports and its model take as long."""
_SHOWN = 20


def main() -> int:
    """Run the parts; return the exit status."""
    asked = _asked()
    if reason := _wrong(asked):
        print(reason, file=sys.stderr)
        return WRONG
    if reason := _missing(asked.device):
        print(f"{reason}: nothing was run", file=sys.stderr)
        return NO_GPU
    ends = time.monotonic() + 60 * asked.minutes
    parts = [part for name in asked.parts or PARTS for part in parts_named(name)]
    results = []
    for part in dict.fromkeys(parts):
        results.append(_within(ends - time.monotonic(), part, asked))
        print(json.dumps(results[-1]), flush=True)
        if asked.out is not None:
            (asked.out / f"{part}.json").write_text(json.dumps(results[-1], indent=1))
    return int(any(outcome["status"] == "failed" for outcome in results))


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/test-gpu", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default all: {', '.join(PARTS)}")
    parser.add_argument("--device", default="cuda", help="device of torch")
    parser.add_argument("--small", action="store_true", help="tiny models, for a CPU")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="time for all parts together"
    )
    parser.add_argument(
        "--model", type=Path, help="model of the part real; default: that of scripts/real-model"
    )
    parser.add_argument("--out", type=Path, help="directory for a JSON file a part")
    return parser.parse_args()


def _wrong(asked: argparse.Namespace) -> str:
    """Return what is wrong with the arguments, empty if nothing is."""
    if unknown := [name for name in asked.parts if not parts_named(name)]:
        return f"no part {', '.join(sorted(unknown))}, but {', '.join(PARTS)}"
    if asked.model is not None and not (asked.model / "config.json").is_file():
        return f"--model: {asked.model} holds no model: it has no config.json; nothing was run"
    # First: on a machine that is paid by the minute the parts would be run for nothing.
    if asked.out is not None:
        try:
            make_writable(asked.out, "--out")
        except SettingsRejected as error:
            return f"nothing can be written to {asked.out}: {error.reason}; nothing was run"
    return ""


def _missing(device: str) -> str:
    """Return why no part can run on this device, empty if they can."""
    if find_spec("torch") is None:
        return f"{sys.executable} has no torch"
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        return "this machine has no GPU that torch can use"
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # of builds without that kind of device
        return f"torch cannot use the device {device}: {str(error).splitlines()[0]}"
    return ""


def _within(left_s: float, part: str, asked: argparse.Namespace) -> Result:
    """Return a part's result; the part has at most so many seconds."""
    if left_s < LEAST_S:
        return {"part": part, "status": "skipped", "reason": "no time is left", "seconds": 0.0}
    print(f"{part}: begins", file=sys.stderr)
    limit_s = min(left_s, LIMITS_S.get(part, LIMIT_S))
    began = time.monotonic()
    status, lines = ended(_command(part, asked), limit_s)
    outcome = result(part, status, lines, limit_s)
    return {**outcome, "seconds": round(time.monotonic() - began, 1)}


def _command(part: str, asked: argparse.Namespace) -> list[str]:
    small = ["--small"] if asked.small else []
    model = [] if asked.model is None else ["--model", str(asked.model)]
    program = [sys.executable, "-m", "benchmarks.gpu.process", part, "--device", asked.device]
    return [*program, *small, *model]


def ended(command: Sequence[str], limit_s: float) -> tuple[int | None, list[str]]:
    """Return a program's status, None if its time was up, and the lines that it printed.

    It has its own session, so that all that it started ends with it.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    status: int | None = None
    try:
        output, _ = process.communicate(timeout=limit_s)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    finally:
        if process.poll() is None:  # such as after Ctrl-C
            os.killpg(process.pid, signal.SIGKILL)
    return status, output.splitlines()


def result(part: str, status: int | None, lines: Sequence[str], limit_s: float) -> Result:
    """Return what a part printed last; if it did not end, what it had measured until then."""
    printed = _last(lines)
    if status == 0:
        return printed
    reason = f"ended with status {status}: {list(lines[-_SHOWN:])}"
    if status is None:
        reason = f"took more than {limit_s:.0f} s"
    return {**printed, "part": part, "status": "failed", "reason": reason}


def _last(lines: Sequence[str]) -> Mapping[str, object]:
    """Return the last line that is a JSON object, an empty one if there is none."""
    for line in reversed(lines):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return {}


if __name__ == "__main__":
    sys.exit(main())
