"""Processes that are killed: those of the run, those that they started, and the judge's server."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from seamlessflow.infra.network.addresses import free_port
from seamlessflow.producers.agents.environments.known import HOST
from seamlessflow.schemas import records as r
from tests import http
from tests.faults.faulty_run import FaultyRun
from tests.faults.judges import server, style
from tests.waiting import until

CHILD, SERVER, PROGRAM, WORKER = "environment", "judge's server", "judge's program", "reward worker"
AGENTS, MANAGER, GATEWAY = "agents", "manager", "gateway"
SHARES: Mapping[str, int] = {
    CHILD: 6,
    SERVER: 4,
    PROGRAM: 3,
    WORKER: 6,
    AGENTS: 1,
    MANAGER: 1,
    GATEWAY: 1,
}
"""Kinds of processes, by how often each is drawn."""
MOMENTS = (r.SessionOpened, r.TurnCompleted, r.SessionClosed, r.RewardAssigned, r.SessionFinalized)
MOMENT_S = 6.0
PRESENT_S = 60.0
READY_S = 20.0
LONGEST_OUTAGE_S = 1.0


class JudgeServer:
    """The server of the model judge, which is started again on its port."""

    def __init__(self) -> None:
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}/v1"
        self._process = self._started()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def back(self) -> None:
        """Start it again, once it was killed."""
        self._process.wait()
        self._process = self._started()

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, server.__file__, str(self._port)])
        until(self._answers, "the judge's server", READY_S)
        return process

    def _answers(self) -> bool:
        try:
            http.get(self.url, timeout=1)
        except httpx.TransportError:
            return False
        return True


@contextmanager
def judge_server() -> Iterator[JudgeServer]:
    """Yield the server of the model judge."""
    made = JudgeServer()
    try:
        yield made
    finally:
        made.end()


class Victims:
    """Processes of a run with judges, by kind, and a count of those that were killed."""

    def __init__(self, run: FaultyRun, model: JudgeServer, directory: Path) -> None:
        """`directory`: a folder that the environment of each process names."""
        self._run = run
        self._model = model
        self._directory = directory
        self.killed: Counter[str] = Counter()

    def kill(self, rng: random.Random) -> None:
        """Kill a process at a moment that the log shows; both are drawn."""
        (kind,) = rng.choices(list(SHARES), list(SHARES.values()))
        self._await_moment(rng.choice(MOMENTS), rng.randint(1, 3))
        self._run.until(lambda: bool(self.present(kind)), kind, PRESENT_S)
        victim = rng.choice(self.present(kind) or [0])
        if not victim:
            return  # it has ended since
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.killed[kind] += 1
        if kind == SERVER:
            outage_s = rng.uniform(0, LONGEST_OUTAGE_S)
            over_s = time.monotonic() + outage_s
            self._run.happens(lambda: time.monotonic() >= over_s, 2 * LONGEST_OUTAGE_S)
            self._model.back()

    def present(self, kind: str) -> list[int]:
        """Return the processes of a kind that run now."""
        if kind == SERVER:
            return [self._model.pid]
        if kind == CHILD:
            return started_with(self._directory, str(HOST))
        if kind == PROGRAM:
            return started_with(self._directory, style.__file__)
        begin = "rewards-" if kind == WORKER else kind
        names = [name for name in self._run.launcher.running if name.startswith(begin)]
        pids = (self._run.pid(name) for name in names)
        return [pid for pid in pids if pid is not None]

    def _await_moment(self, moment: type[r.Record], count: int) -> None:
        log = self._run.log
        mark = log.mark
        self._run.happens(lambda: len(log.since(mark, moment)) >= count, MOMENT_S)


def started_with(directory: Path, argument: str = "") -> list[int]:
    """Return the processes whose environment names the directory, with this argument if any."""
    processes = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue  # it has ended, or is another user's
        mine = str(directory).encode() in environment and int(folder.name) != os.getpid()
        if mine and (not argument or argument in words[1:]) and "-c" not in words[:3]:
            processes.append(int(folder.name))
    return processes
