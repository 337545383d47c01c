"""A short run: its configuration, with an agent of the test and a model that knows nothing, its
processes, and what it writes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from seamlessflow.demo.model import make_model
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.cluster import has_address
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.topics import CONTROL, SESSIONS, Topic
from tests.live_log import LiveLog
from tests.waiting import until

TASKS = 50


def short_run(
    directory: Path,
    agent: str,
    steps: int,
    modelled: bool = False,
    kafka: KafkaSettings | None = None,
) -> Path:
    """Write the configuration of a run in `directory` / "out"; return its file.

    `agent` is the text of a module with a function `run`. The directory must be the working
    directory of the run, so that the module is found. Where nothing is learned, `modelled` devices
    save the time in which torch starts. `kafka` is used in place of an embedded one.
    """
    make_model(directory / "model", seed=1)
    (directory / "short_agent.py").write_text(agent)
    tasks = "".join(json.dumps({"id": str(number)}) + "\n" for number in range(TASKS))
    (directory / "tasks.jsonl").write_text(tasks)
    values: dict[str, Any] = {
        "out": str(directory / "out"),
        "workers": [
            {"id": "w0", "tags": ["rollout"]},
            {"id": "w1", "tags": ["rollout", "train"]},
        ],
        "policy": {"model": str(directory / "model"), "max_context": 512},
        "run": {"id": "short", "steps": steps, "groups_per_step": 2, "group_size": 4},
        "pacing": {
            "tasks": str(directory / "tasks.jsonl"),
            "task_timeout_s": 60,
            "group_timeout_s": 200,
        },
        "agents": {"callable": "short_agent:run"},
        "trainer": {"threads": 1, "checkpoint_every": 2},
        "rollout": {"torch": {"threads": 1, "kv_bytes": 64 * 1024**2}},
    }
    if modelled:
        values |= {"trainer": {"backend": "clock"}, "rollout": {"engine": "clock"}}
    if kafka is not None:
        values["kafka"] = kafka.model_dump(include={"bootstrap_servers", "topic_prefix"})
    file = directory / "run.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


def processes_of(out: Path, word: str, setting: str = "") -> Iterator[int]:
    """Yield the processes of a run with this word in their command line, and this text in their
    settings."""
    variable = f"SEAMLESSFLOW_DATA_DIR={out}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        mine = variable in environment.split(b"\0") or any(
            str(out).encode() in argument for argument in words
        )
        if mine and word.encode() in words and setting.encode() in environment:
            yield int(folder.name)


@contextmanager
def started(config: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command on the configuration; kill it at the end if it goes on."""
    with subprocess.Popen(
        [sys.executable, "-m", "seamlessflow", *arguments, "--config", str(config)],
        cwd=config.parent,
        env={**os.environ, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run_log(kafka: KafkaSettings, out: Path, limit_s: float) -> LiveLog:
    """Return `control` and `sessions` of a run that starts, once its topics are there."""
    until(lambda: has_address(out), "the address of the run", limit_s)
    return LiveLog(kafka, CONTROL, SESSIONS, limit_s=limit_s)


def records_of(kafka: KafkaSettings, topic: Topic) -> list[Record]:
    """Return all records of a topic."""
    return [item.record for item in read_topic(kafka, topic, Skipped())]
