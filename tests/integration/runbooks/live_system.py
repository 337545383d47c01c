"""The system on which commands of runbooks run: a recorded log, a gateway, a run's files."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from seamlessflow.__main__ import app
from seamlessflow.infra.kafka.dead_letters import send_letter
from seamlessflow.infra.kafka.producer import Producer
from seamlessflow.infra.kafka.topics.creation import create_topics
from seamlessflow.infra.kafka.unreadable import Letter
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.processes.cluster import write_address
from seamlessflow.schemas.topics import (
    ENDED_SESSIONS,
    REQUESTS,
    SESSIONS,
    TASKS,
    TOPICS,
    TRAJECTORIES,
)
from tests.builders.gateway.scripted_manager import gateway_process
from tests.builders.own_topics import small
from tests.builders.trajectories.golden_topics import golden_log, write_golden
from tests.integration.runbooks.commands import Command
from tests.paths import ROOT

SESSION = "chat-plain"
_LARGE = (SESSIONS, TRAJECTORIES, REQUESTS, ENDED_SESSIONS)
_LIMIT_S = 120
_SHELL_WORDS = set("|><;&")


class LiveSystem:
    """Runs commands in the directory of a user, with names in the place of placeholders."""

    def __init__(self, directory: Path, kafka: KafkaSettings, gateway: str) -> None:
        self._directory = directory
        prefix = kafka.topic_prefix
        self._names = {
            "SESSION...": SESSION,
            "SESSION": SESSION,
            "demo-9.3.0": SESSION,
            ".seamlessflow/demo": "out",
            "OUT": "out",
            "DIR": "exports",
            "GATEWAY": gateway.removeprefix("http://"),
            "--to clean.": f"--to {prefix}clean.",
            "--to again.": f"--to {prefix}again.",
            ".venv/bin/seamlessflow": "seamlessflow",
        }
        self._environment = {
            "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "SEAMLESSFLOW_KAFKA__TOPIC_PREFIX": prefix,
        }

    def run(self, command: Command) -> tuple[int, str]:
        """Run it; return its exit status and what it said."""
        text = command.text
        for placeholder, name in self._names.items():
            text = text.replace(placeholder, name)
        ours = text.startswith("seamlessflow ") and not _SHELL_WORDS & set(text)
        if ours and not command.until_stopped:
            return self._in_process(shlex.split(text)[1:])
        return self._in_shell(text, command.until_stopped)

    def _in_process(self, arguments: list[str]) -> tuple[int, str]:
        """Run our own command here, which saves its imports."""
        done = CliRunner().invoke(app, arguments, env=self._environment)
        return done.exit_code, f"{done.output}{done.exception or ''}"

    def _in_shell(self, text: str, until_stopped: bool) -> tuple[int, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | self._environment | {"PATH": path, "PYTHONPATH": str(ROOT)}
        started = subprocess.Popen(
            ["bash", "-c", f"exec {text}" if until_stopped else text],
            cwd=self._directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with started:
            first = started.stdout.readline() if until_stopped and started.stdout else ""
            if until_stopped:
                started.send_signal(signal.SIGINT)
            rest, _ = started.communicate(timeout=_LIMIT_S)
        stopped = until_stopped and started.returncode in (130, -signal.SIGINT)
        return 0 if stopped else started.returncode, first + rest


@contextmanager
def live_system(directory: Path, kafka: KafkaSettings) -> Iterator[LiveSystem]:
    """Yield the system; `directory` becomes a user's, with a run under way in `out`."""
    out = directory / "out"
    for folder in (out / "logs", out / "trained", directory / "exports"):
        folder.mkdir(parents=True)
    for process in ("scheduler", "trainer-w0"):
        (out / "logs" / f"{process}.log").touch()
    (out / "logs" / "broker.log").write_text("--- broker ended with exit status 1\n")
    (directory / "judged.jsonl").write_text(f'{{"session_id": "{SESSION}", "value": 0.5}}\n')
    write_golden(kafka, golden_log())
    others = small(*(topic for topic in TOPICS.values() if topic not in _LARGE))
    create_topics(kafka, [REQUESTS, ENDED_SESSIONS, *others])
    _bury(kafka)
    with gateway_process(kafka) as gateway:
        # Without object storage, as when the log was recorded: a session there is too large.
        write_address(out, kafka.model_copy(update={"blobs": None}), gateway.url)
        yield LiveSystem(directory, kafka, gateway.url)


def _bury(kafka: KafkaSettings) -> None:
    """Write the dead letter that the runbook shows."""
    producer = Producer(kafka, "test")
    send_letter(producer, Letter(TASKS.name, 5, 40, None, b"garbage", "no schema has the header"))
    producer.close(_LIMIT_S)
