"""CPU time for a call whose agent is an environment's process, and for a plain callable.

    python -m benchmarks environments [--turns 5] [--episodes 2048] [--at-once 256]

An episode asks one question from reasoning-gym, so a session has one call. The callable does the
same in the agents' process: it builds the entry, asks by the `openai` client, and scores the
answer. Embedded Kafka, gateway, manager and a worker that answers at once are the same for both.
The two take turns, each pair in the other order. Each turn has a new agents process. It first plays
`--at-once` episodes twice, so that its consumer group has joined and all is warm. `ours` is the sum
over gateway, manager, agents and the environment's process. Figures are CPU microseconds a call,
the medians over all turns. A first turn is not counted. The package has to be installed.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory

import httpx

from benchmarks.load.agent_turns import CALLABLE, ENVIRONMENT, AgentTurn, figures_of, table
from benchmarks.load.children import cpu_s
from benchmarks.load.questions import PACKAGE, SETTINGS
from benchmarks.load.whole_path import POLICY, SECRET, WholePath, whole_path
from seamlessflow.infra.clock import now_ms
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.network.addresses import free_port
from seamlessflow.producers.agents.environments.listing import write_tasks
from seamlessflow.producers.agents.environments.venvs import environment_spec
from seamlessflow.producers.agents.settings import AgentsSection
from seamlessflow.producers.gateway.calls.keys import derived_admin_key
from seamlessflow.schemas.records import Task
from seamlessflow.schemas.topics import TASKS

_SETTINGS = {"datasets": ["chain_sum"], "size": 512}
_ANSWER = "<answer>3</answer>"
_LIMIT_S = 300.0
_LOOK_S = 0.25
_ENDED = re.compile(r'^seamlessflow_agents_tasks_total\{ending="(\w+)"\} (\S+)$', re.MULTILINE)
_RETURNED = "Returned"


def main(argv: Sequence[str]) -> None:
    """Print a table to standard error, and one line of JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks environments", description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="of each kind")
    parser.add_argument("--episodes", type=int, default=2048, help="measured ones of a turn")
    parser.add_argument("--at-once", type=int, default=256)
    asked = parser.parse_args(argv)
    turns = []
    with TemporaryDirectory() as scratch, whole_path(_ANSWER) as path:
        payloads = _payloads(Path(scratch))
        load = _Load(path, payloads, Path(scratch), asked.episodes, asked.at_once)
        load.turn(CALLABLE)
        for number in range(asked.turns):
            kinds = (CALLABLE, ENVIRONMENT)
            for kind in kinds if number % 2 == 0 else reversed(kinds):
                turns.append(load.turn(kind))
                print(turns[-1].line, file=sys.stderr)
    print(table(turns), file=sys.stderr)
    figures = {"benchmark": "environments", **vars(asked), **figures_of(turns)}
    print(json.dumps(figures))


def _payloads(scratch: Path) -> list[bytes]:
    """Return the tasks that the environment lists, as lines of JSON."""
    section = AgentsSection.model_validate({"environment": PACKAGE, "settings": _SETTINGS})
    spec = environment_spec(section, os.environ, scratch / "listing.log")
    file = scratch / "tasks.jsonl"
    asyncio.run(write_tasks(spec, file, lambda _: None))
    return file.read_bytes().splitlines()


class _Load:
    """Episodes on the whole path, for one agents process after the other."""

    def __init__(
        self,
        path: WholePath,
        payloads: Sequence[bytes],
        scratch: Path,
        episodes: int,
        at_once: int,
    ) -> None:
        self._path = path
        self._payloads = payloads
        self._scratch = scratch
        self._episodes = episodes
        self._at_once = at_once
        self._issued = 0

    def turn(self, kind: str) -> AgentTurn:
        """Return a new agents process's figures. Raises if not all episodes are rewarded."""
        metrics = f"http://127.0.0.1:{free_port()}"
        with self._agents(kind, metrics) as agents:
            warm = 2 * self._at_once
            self._play(warm, metrics, warm)
            pids = {**self._path.pids(), **_environment_of(agents.pid)}
            before = {name: cpu_s(pid) for name, pid in pids.items()}
            begun_s = time.monotonic()
            self._play(self._episodes, metrics, warm + self._episodes)
            seconds = time.monotonic() - begun_s
            used = {name: cpu_s(pid) - before[name] for name, pid in pids.items()}
        cpu_us = {name: 1e6 * of_process / self._episodes for name, of_process in used.items()}
        return AgentTurn(kind, self._episodes / seconds, cpu_us)

    @contextmanager
    def _agents(self, kind: str, metrics: str) -> Iterator[Popen[str]]:
        of_kind = {
            CALLABLE: {
                "SEAMLESSFLOW_AGENTS__CALLABLE": "benchmarks.load.questions:answered",
                SETTINGS: json.dumps(_SETTINGS),
            },
            ENVIRONMENT: {
                "SEAMLESSFLOW_AGENTS__ENVIRONMENT": PACKAGE,
                "SEAMLESSFLOW_AGENTS__SETTINGS": json.dumps(_SETTINGS),
            },
        }
        variables = {
            **self._path.variables,
            **of_kind[kind],
            "SEAMLESSFLOW_AGENTS__GATEWAY_URL": self._path.url,
            "SEAMLESSFLOW_AGENTS__ADMIN_KEY": derived_admin_key(SECRET),
            "SEAMLESSFLOW_AGENTS__CONCURRENCY": str(self._at_once),
            "SEAMLESSFLOW_TELEMETRY__METRICS_PORT": metrics.rpartition(":")[2],
            "SEAMLESSFLOW_DATA_DIR": str(self._scratch),
        }
        module = "seamlessflow.producers.agents"
        with self._path.children.start("agents", module, environment=variables) as agents:
            try:
                yield agents
            finally:
                agents.terminate()

    def _play(self, number: int, metrics: str, ended: int) -> None:
        """Issue `number` tasks; return once `ended` tasks have ended since the process began."""
        producer = Producer(self._path.kafka, "benchmark-tasks")
        for _ in range(number):
            task = _task(self._issued, self._payloads[self._issued % len(self._payloads)])
            producer.send(TASKS.name, task, key=task.group_id)
            self._issued += 1
        producer.close()
        deadline_s = time.monotonic() + _LIMIT_S
        while (count := _returned(metrics)) < ended:
            self._path.children.check()
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{count} of {ended} episodes returned within {_LIMIT_S:g} s")
            time.sleep(_LOOK_S)


def _task(number: int, payload: bytes) -> Task:
    now = now_ms()
    return Task(
        policy=POLICY,
        task_id=str(json.loads(payload)["id"]),
        group_id=f"questions-{number}",
        payload=payload,
        issued_at_ms=now,
        deadline_ms=now + round(1000 * _LIMIT_S),
    )


def _returned(metrics: str) -> int:
    """Return how many episodes have returned. Raises `RuntimeError` if any ended otherwise."""
    try:
        text = httpx.get(f"{metrics}/metrics").raise_for_status().text
    except httpx.HTTPError:  # it starts
        return 0
    ended = {ending: int(float(count)) for ending, count in _ENDED.findall(text)}
    if ended.keys() - {_RETURNED}:
        raise RuntimeError(f"episodes ended: {ended}")
    return ended.get(_RETURNED, 0)


def _environment_of(agents: int) -> dict[str, int]:
    """Return the process that an agents process has started for its environment, if any."""
    lists = Path(f"/proc/{agents}/task").glob("*/children")
    started = [int(pid) for file in lists for pid in file.read_text(encoding="ascii").split()]
    if len(started) > 1:
        raise RuntimeError(f"{len(started)} processes of one environment")
    return dict(zip([ENVIRONMENT], started, strict=False))
