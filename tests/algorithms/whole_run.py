"""A run of `seamlessflow train` as a user starts it, whose trainer is killed once on the way.

So are its reward workers, if it has any.
"""

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.stopping import Stop
from tests.e2e.runs.short_run import processes_of
from tests.paths import ROOT

TRAINER = "seamlessflow.trainer"
REWARD_WORKER = "seamlessflow.recorded.judging"
LIMIT_S = 900.0
"""Most time of a run; a few steps take one to two minutes on two busy cores."""
_POLL_S = 0.02
_END_S = 90.0
_CHECKPOINT = "checkpoint-*/state.json"


class RunFailed(Exception):
    """A command that did not end as it should; the text is the end of what it printed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that has ended by itself."""

    killed_at: int
    """Steps behind the trainer when it was killed."""
    printed: str


class Commands:
    """The commands of `seamlessflow` on one run. What they print goes to files beside its `out`."""

    def __init__(self, out: Path, kafka: KafkaSettings, stop: Stop) -> None:
        self.out = out
        self.user_modules = out.with_name(f"{out.name}-own")
        """Directory of modules of the user's own, which need not be there."""
        self.kafka, self._stop = kafka, stop

    def train(self, config: Path, steps: int) -> Ended:
        """Train; kill trainer and reward workers once, a step behind the newest checkpoint.

        Raises `RunFailed` if it fails, or ends before that moment came.
        """
        killed = 0
        with self._started("train", "--config", str(config)) as process:
            try:
                while process.poll() is None:
                    self._stop.wait(_POLL_S)
                    made = steps_made(self.out)
                    if not killed and 0 < _checkpointed(self.out) < made < steps:
                        killed = made
                        self._kill(TRAINER)
                        self._kill(REWARD_WORKER)
            finally:
                self._end(process)
        printed = self._checked(process, "train")
        if not killed:
            raise RunFailed(f"the trainer was never a step behind its checkpoint, of {steps} steps")
        return Ended(killed, printed)

    def __call__(self, *arguments: str) -> str:
        """Run a command that reads the log; return what it printed. Raises `RunFailed`."""
        with self._started(*arguments) as process:
            try:
                while process.poll() is None:
                    self._stop.wait(_POLL_S)
            finally:
                self._end(process)
        return self._checked(process, arguments[0])

    def _started(self, *arguments: str) -> subprocess.Popen[bytes]:
        variables: Mapping[str, str] = {
            "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "SEAMLESSFLOW_KAFKA__TOPIC_PREFIX": self.kafka.topic_prefix,
            "SEAMLESSFLOW_KAFKA__BLOBS": self.kafka.blobs or "",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(self.user_modules)]),
            "COLUMNS": "200",
        }
        with self._file(arguments[0]).open("wb") as printed:
            return subprocess.Popen(
                [sys.executable, "-m", "seamlessflow", *arguments],
                env={**os.environ, **variables},
                stdout=printed,
                stderr=subprocess.STDOUT,
                # Ctrl-C comes to this process alone, which then ends the command in order.
                start_new_session=True,
            )

    def _kill(self, module: str) -> None:
        for process in processes_of(self.out, module):
            os.kill(process, signal.SIGKILL)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is not None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()

    def _checked(self, process: subprocess.Popen[bytes], command: str) -> str:
        printed = self._file(command).read_text(encoding="utf-8", errors="replace")
        if process.returncode:
            lines = _last(printed.splitlines())
            raise RunFailed(f"{command} ended with status {process.returncode}: {lines}")
        return printed

    def _file(self, command: str) -> Path:
        return self.out.with_name(f"{self.out.name}-{command}.txt")


def steps_made(out: Path) -> int:
    """Return the steps whose row is in the metrics."""
    try:
        with (out / "metrics.csv").open(encoding="utf-8") as rows:
            return max((int(row["step"]) for row in csv.DictReader(rows)), default=0)
    except FileNotFoundError:
        return 0


def _checkpointed(out: Path) -> int:
    """Return the version of the newest whole checkpoint, which is its steps before a resume."""
    files = (out / "checkpoints").glob(_CHECKPOINT)
    return max((int(file.parent.name.partition("-")[2]) for file in files), default=0)


def _last(lines: Sequence[str], most: int = 12) -> str:
    return "\n".join(["", *lines[-most:]])
