"""The command `seamlessflow console` as a process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from seamlessflow.infra.settings import KafkaSettings

COMMAND = (sys.executable, "-m", "seamlessflow")
_SAYS = "the console is at "


def variables(kafka: KafkaSettings) -> dict[str, str]:
    """Return an environment that names a Kafka and its prefix."""
    return os.environ | {
        "SEAMLESSFLOW_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "SEAMLESSFLOW_KAFKA__TOPIC_PREFIX": kafka.topic_prefix,
    }


@contextmanager
def running(kafka: KafkaSettings, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Yield the address that the command prints, and its process."""
    command = [*COMMAND, "console", "--port", "0", *options]
    environment = variables(kafka)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().removeprefix(_SAYS).strip(), process
        finally:
            process.kill()
