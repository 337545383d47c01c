"""Checks of what only a GPU can show: parts of minutes, each in a process of its own.

    scripts/test-gpu [--device cuda] [--small] [--out DIR] [PART...]

Prints one line of JSON a part, with its figures and the device, and writes each to DIR. A part that
lacks something, such as vLLM, says so and is skipped. Ends with status 1 if a part failed, 2 for a
part that does not exist or a DIR that cannot be written, 3 without a GPU. `--device cpu --small`
runs the same code on a CPU.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu.part import PARTS
from seamlessflow.infra.disk import make_writable
from seamlessflow.infra.errors import SettingsRejected

WRONG = 2
NO_GPU = 3
LIMIT_S = 900
_SHOWN = 20


def main() -> int:
    """Run the parts; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="scripts/test-gpu", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default all: {', '.join(PARTS)}")
    parser.add_argument("--device", default="cuda", help="device of torch")
    parser.add_argument("--small", action="store_true", help="tiny models, for a CPU")
    parser.add_argument("--out", type=Path, help="directory for a JSON file a part")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        print(f"no part {', '.join(sorted(unknown))}, but {', '.join(PARTS)}", file=sys.stderr)
        return WRONG
    # First: on a machine that is paid by the minute the parts would be run for nothing.
    if asked.out is not None:
        try:
            make_writable(asked.out, "--out")
        except SettingsRejected as error:
            message = f"nothing can be written to {asked.out}: {error.reason}; nothing was run"
            print(message, file=sys.stderr)
            return WRONG
    if reason := _missing(asked.device):
        print(f"{reason}: nothing was run", file=sys.stderr)
        return NO_GPU
    results = []
    for part in asked.parts or PARTS:
        print(f"{part}: begins", file=sys.stderr)
        results.append(_run(part, asked))
        print(json.dumps(results[-1]), flush=True)
        if asked.out is not None:
            (asked.out / f"{part}.json").write_text(json.dumps(results[-1], indent=1))
    return int(any(result["status"] == "failed" for result in results))


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


def _run(part: str, asked: argparse.Namespace) -> Mapping[str, object]:
    """Return the result of a part, which has a limit of time."""
    small = ["--small"] if asked.small else []
    command = [
        sys.executable,
        "-m",
        "benchmarks.gpu.process",
        part,
        "--device",
        asked.device,
        *small,
    ]
    began = time.monotonic()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S)
        lines = done.stdout.splitlines()
        outcome = json.loads(lines[-1]) if lines and not done.returncode else None
        why = f"ended with status {done.returncode}: {lines[-_SHOWN:]}"
    except subprocess.TimeoutExpired:
        outcome, why = None, f"took more than {LIMIT_S} s"
    result = outcome or {"part": part, "status": "failed", "reason": why}
    return {**result, "seconds": round(time.monotonic() - began, 1)}


if __name__ == "__main__":
    sys.exit(main())
