"""The scheduler as a process of its own, which tests end at any moment."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.infra.settings import KafkaSettings
from tests.waiting import until


@dataclass(frozen=True, slots=True)
class SchedulerProcess:
    """A process `python -m seamlessflow.scheduler` and its log."""

    process: subprocess.Popen[bytes]
    file: Path

    @property
    def words(self) -> str:
        """The log so far."""
        return self.file.read_text()

    def says(self, words: str) -> None:
        """Wait until the log has these words."""
        until(lambda: words in self.words or self.process.poll() is not None, words)
        assert words in self.words, self.words

    def freeze(self) -> None:
        """Stop it where it is."""
        self.process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """End it at once, without its last snapshot."""
        self.process.kill()
        self.process.wait()


@contextmanager
def scheduler_process(
    kafka: KafkaSettings, directory: Path, **settings: object
) -> Iterator[SchedulerProcess]:
    """Yield a process with these settings (`run__steps=4`); kill it at the end."""
    named = {f"SEAMLESSFLOW_{name.upper()}": str(value) for name, value in settings.items()}
    environment = {
        **os.environ,
        "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SEAMLESSFLOW_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
        **named,
    }
    file = directory / f"scheduler-{len(list(directory.glob('scheduler-*.log')))}.log"
    with file.open("wb") as words:
        process = subprocess.Popen(
            [sys.executable, "-m", "seamlessflow.scheduler"], env=environment, stderr=words
        )
    running = SchedulerProcess(process, file)
    try:
        yield running
    finally:
        running.kill()
