"""A small real training under steady load, whose processes a test kills and freezes.

Two gateways, two managers, two workers of which one trains, a scheduler, a trainer, agents, and an
embedded broker as its own process. What is killed is started again, as in any run.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from seamlessflow.config import RunConfig
from seamlessflow.config_file import parse
from seamlessflow.demo.model import make_model
from seamlessflow.infra.broker.broker import Broker
from seamlessflow.infra.broker.programs import JavaOptions
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.network.addresses import free_ports
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.child import ChildSpec
from seamlessflow.processes.launcher import Launcher
from seamlessflow.processes.specs import LaunchContext, ProcessSpecs
from seamlessflow.processes.stopping import Stop
from seamlessflow.processes.supervisor import Supervisor
from tests.faults.faults import BROKER, OTHERS
from tests.faults.load_agent import GATEWAYS
from tests.faults.log_watch import FEW, LogWatch
from tests.paths import ROOT

LEASE_S = 3
"""Silence after which a process has lost what it held: partitions, its role."""
FREEZE_S = 4.0
"""Time past every lease of a process that the log does not report as lost."""
START_S = 180.0
LONG_TURN = 400
"""Tokens of a turn whose agent does not ask for fewer; the agents of the load do."""
LEVELS = 3
"""Pools of the tasks, by a field of their metadata."""
Changes = Mapping[str, Mapping[str, Any]]
_TASKS = 50
_JAVA = JavaOptions(heap_mb=512, short_lived=True)
_LEASES: dict[str, str | int] = {
    "group.consumer.min.session.timeout.ms": 1000 * LEASE_S,
    "group.consumer.session.timeout.ms": 1000 * LEASE_S,
}


class FaultyRun:
    """The processes of the run, by name, and a watch of its log."""

    def __init__(
        self, launcher: Launcher, broker: Broker, config: RunConfig, urls: list[str]
    ) -> None:
        self.config = config
        self.urls = urls
        self.kafka: KafkaSettings = broker.settings
        self.log = LogWatch(self.kafka)
        self.launcher = launcher
        self._broker = broker
        self.ended: list[str] = []
        """Lines of the supervisor about processes that ended."""

    def pid(self, name: str) -> int | None:
        """Return the process with this name; None while it is being started again."""
        if name == BROKER:
            return self._broker.pid
        child = self.launcher.running.get(name)
        return child.pid if child is not None and child.running else None

    def start_broker(self) -> None:
        """Start the broker again, where nothing else does."""
        self._broker.start()

    def until(self, condition: Callable[[], bool], what: str, limit_s: float) -> None:
        """Watch log and processes until the condition holds; fail the test if it does not."""
        self.launcher.wait_for(what, lambda: self._watched(condition), limit_s)

    def happens(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Return whether the condition holds within the time; watch log and processes meanwhile."""
        deadline = time.monotonic() + limit_s
        while not self._watched(condition):
            self.launcher.check()
            if time.monotonic() > deadline:
                return False
        return True

    def _watched(self, condition: Callable[[], bool]) -> bool:
        self.log.poll()
        return condition()


def _config(directory: Path, groups_per_step: int, changes: Changes) -> RunConfig:
    make_model(directory / "model", seed=1)
    tasks = [
        {"id": str(number), "metadata": {"level": str(number % LEVELS)}} for number in range(_TASKS)
    ]
    (directory / "tasks.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
    values: dict[str, Any] = {
        "out": str(directory / "out"),
        "workers": [
            {"id": "w0", "tags": ["rollout"]},
            {"id": "w1", "tags": ["rollout", "train"]},
        ],
        "policy": {"model": str(directory / "model"), "max_context": 512},
        "run": {
            "id": "f",
            "steps": 100_000,
            "groups_per_step": groups_per_step,
            "group_size": 2,
            "lag": 3,
        },
        "pacing": {
            "tasks": str(directory / "tasks.jsonl"),
            "task_timeout_s": 60,
            "group_timeout_s": 120,
            "task_grace_s": 5,
            "max_attempts": 10,
        },
        "agents": {
            "callable": "tests.faults.load_agent:run",
            "concurrency": 8,
            "call_limit_s": 5,
        },
        "trainer": {"threads": 1, "checkpoint_every": 2, "most_barren_steps": 1000},
        "rollout": {
            "engine": "scripted",
            "scripted": {"tokens": LONG_TURN, "tokens_per_second": 24},
        },
        "scheduler": {
            "heartbeat_timeout_s": LEASE_S,
            "assignment_timeout_s": 20,
            "gang_timeout_s": 20,
        },
        "manager": {"no_progress_s": LEASE_S},
        "gateway": {"disconnect_grace_s": 5, "turn_timeout_s": 40},
        "restarts": {"most": 100_000, "pause_s": 0, "longest_pause_s": 0},
    }
    for section, change in changes.items():
        values[section] = {**values.get(section, {}), **change}
    return parse(values)


def _second(spec: ChildSpec, name: str) -> ChildSpec:
    return replace(spec, name=name)


def _specs(config: RunConfig, kafka: KafkaSettings, ports: list[int]) -> list[ChildSpec]:
    gateways = " ".join(f"http://127.0.0.1:{port}" for port in ports)
    environment = os.environ | {"PYTHONPATH": str(ROOT), GATEWAYS: gateways}
    first, other = (ProcessSpecs(config, LaunchContext(kafka, port, environment)) for port in ports)
    return [
        first.gateway(),
        _second(other.gateway(), OTHERS["gateway"]),
        first.manager(),
        _second(other.manager(), OTHERS["manager"]),
        *first.rollouts(),
        *first.reward_workers(),
        first.agents(),
        first.scheduler(),
        *first.trainers(),
    ]


@contextmanager
def faulty_run(
    directory: Path,
    groups_per_step: int = 4,
    broker_returns: bool = True,
    changes: Changes = MappingProxyType({}),
) -> Iterator[FaultyRun]:
    """Yield the run; end all its processes at the end.

    `broker_returns` False: a broker that was killed stays away until the test starts it. `changes`
    go over the configuration, section by section.
    """
    ended: list[str] = []
    config = _config(directory, groups_per_step, changes)
    supervisor = Supervisor(config.restarts, ended.append)
    broker = Broker(directory / "kafka", java=_JAVA, properties=_LEASES)
    with Launcher(directory / "logs", Stop(), supervisor) as launcher, broker:
        create_topics(broker.settings, FEW.values())
        if broker_returns:
            launcher.watch(broker)
        ports = free_ports(2)
        for spec in _specs(config, broker.settings, ports):
            launcher.start(spec)
        made = FaultyRun(launcher, broker, config, [f"http://127.0.0.1:{port}" for port in ports])
        made.ended = ended
        try:
            yield made
        finally:
            made.log.close()
            # Without an order each would wait for another one; the log is all that counts here.
            for child in launcher.running.values():
                child.kill()
