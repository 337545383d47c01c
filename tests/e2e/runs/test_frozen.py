"""Processes of a run that are frozen one after the other: each is reported and started again."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from seamlessflow.config import RunConfig
from seamlessflow.config_file import parse
from seamlessflow.demo.model import make_model
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import SHORT_LIVED
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.client import BEGINNING
from seamlessflow.infra.kafka.reader import Reader
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.network.addresses import free_port
from seamlessflow.processes.launcher import BROKER, Launcher
from seamlessflow.processes.specs import LaunchContext, ProcessSpecs
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.supervisor import Supervisor
from seamlessflow.schemas.records import ProgressStalled
from seamlessflow.schemas.topics import CONTROL, TOPICS
from seamlessflow.watching.observer import StallReports, frozen

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
LIMIT_S = 300
FROZEN_S = 6
READY = {
    "trainer": "is ready at step",
    "trainer-w0": "training process w0 is ready",
    "gateway": "listens on",
    "manager": "is ready",
    "rollout-w0": "is ready",
    "agents": "running agents",
    "scheduler": "acts as of",
}
"""Processes, each with words that it logs when it does its work."""


@dataclass
class WatchedRun:
    """The processes, and the stalls on `control` so far."""

    launcher: Launcher
    broker: Broker
    reader: Reader
    stalls: list[ProgressStalled] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    ready: set[int] = field(default_factory=set)
    """Processes that have logged that they do their work."""

    def until(self, condition: Callable[[], bool], what: str) -> None:
        self.launcher.wait_for(what, lambda: self._read() and condition(), LIMIT_S)

    def pid(self, name: str) -> int | None:
        """Return the process with this name, None while it does not do its work."""
        if name == BROKER:
            return self.broker.pid
        child = self.launcher.running.get(name)
        if child is None or not child.running:
            return None
        if READY[name] in child.tail():
            self.ready.add(child.pid)
        return child.pid if child.pid in self.ready else None

    def _read(self) -> bool:
        for item in self.reader.poll(0.02):
            if isinstance(item.record, ProgressStalled):
                self.stalls.append(item.record)
        return True


def configuration(directory: Path) -> RunConfig:
    make_model(directory / "model", seed=1)
    (directory / "tasks.jsonl").write_text('{"id": "1", "key": 1}\n')
    return parse(
        {
            "out": str(directory / "out"),
            "workers": [{"id": "w0", "tags": ["rollout", "train"]}],
            "policy": {"model": str(directory / "model"), "max_context": 512},
            "pacing": {"tasks": str(directory / "tasks.jsonl")},
            "agents": {"callable": "seamlessflow.demo.agent:run"},
            "trainer": {"threads": 1},
            "rollout": {"engine": "scripted"},
            "scheduler": {"heartbeat_timeout_s": FROZEN_S - 1},
            "restarts": {"frozen_s": FROZEN_S, "most": 50},
        }
    )


@pytest.fixture
def run(tmp_path: Path) -> Iterator[WatchedRun]:
    """Yield a run whose processes all do their work; end them at the end."""
    config, notices = configuration(tmp_path), list[str]()
    supervisor = Supervisor(config.restarts, notices.append)
    broker = Broker(tmp_path / "kafka", java=SHORT_LIVED)
    with Launcher(tmp_path / "logs", Stop(), supervisor) as launcher, broker:
        create_topics(broker.settings, TOPICS.values())
        launcher.watch(broker)
        specs = ProcessSpecs(config, LaunchContext(broker.settings, free_port(), os.environ))
        reader = Reader(broker.settings, "watch")
        reader.assign({(CONTROL.name, 0): BEGINNING})
        with StallReports(broker.settings) as reports:
            launcher.report_to(
                lambda still: reports.send(frozen(still.name, still.limit_s, now_ms()))
            )
            for spec in (
                *(specs.gateway(), specs.manager(), specs.agents(), specs.scheduler()),
                *(*specs.rollouts(), *specs.trainers()),
            ):
                launcher.start(spec)
            made = WatchedRun(launcher, broker, reader, notices=notices)
            made.until(lambda: None not in map(made.pid, READY), "all processes")
            yield made
        reader.close()
        # Without an order each would wait for another one; they have done their part.
        for child in launcher.running.values():
            child.kill()


def test_each_process_that_is_frozen_is_reported_and_another_does_its_work(run: WatchedRun) -> None:
    """Holds invariant I8."""
    for name in (*READY, BROKER):
        pid = run.pid(name)
        assert pid is not None, name
        os.kill(pid, signal.SIGSTOP)

        def is_reported(name: str = name) -> bool:
            return any(stall.what == f"{name} stands still" for stall in run.stalls)

        def works(name: str = name, pid: int = pid) -> bool:
            return run.pid(name) not in (None, pid)

        run.until(is_reported, f"the report about {name}")
        run.until(works, f"another {name}")
        assert any(line.startswith(f"{name} gave no sign of life") for line in run.notices)
    gateways = [stall for stall in run.stalls if stall.process.startswith("gateway ")]
    assert [stall.deadline_ms for stall in gateways] == [1000 * (FROZEN_S - 1)]
