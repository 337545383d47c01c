"""The command `seamlessflow` as parts run it, with a deadline, and Kafka, which it needs."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.gpu.part import Lacks
from seamlessflow.infra.broker.jars import class_path
from seamlessflow.infra.errors import JarRejected, JarsUnavailable

_ROOT = Path(__file__).parents[2]


def require_kafka() -> None:
    """Raise `Lacks` without Kafka."""
    try:
        class_path()
    except (JarRejected, JarsUnavailable) as error:
        raise Lacks(f"Kafka: {error}") from error


def run_seamlessflow(
    arguments: Sequence[str], limit_s: float, settings: Mapping[str, str] | None = None
) -> str:
    """Run a command from this repository, with more settings; return its standard output.

    Raises `RuntimeError` for another status than 0, and `TimeoutExpired`. What the command started
    ends then by itself, within seconds.
    """
    path = [str(_ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    done = subprocess.run(
        [sys.executable, "-m", "seamlessflow", *arguments],
        env={**os.environ, **(settings or {}), "PYTHONPATH": os.pathsep.join(path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=limit_s,
    )
    if done.returncode:
        raise RuntimeError(f"{arguments[0]} ended with status {done.returncode}: {done.stdout}")
    return done.stdout
