"""Virtual environments for packages: made once from a lock, each apart from all others.

They lie in the user's cache, by their lock's hash, so a newer release makes its own.
`seamlessflow environments install NAME` makes one.
"""

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

from seamlessflow.infra.broker.jars import default_cache
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.producers.agents.environments.child import EnvironmentSpec, EnvironmentUnusable
from seamlessflow.producers.agents.environments.known import KNOWN, KnownEnvironment, adapter_of
from seamlessflow.producers.agents.settings import AgentsSection

_MADE = "made"
"""File that exists once all packages are installed."""
_VERSION_S = 60.0
_ASK = """
import json, platform, sys
from importlib.metadata import PackageNotFoundError, version
present = {}
for name in sys.argv[1:]:
    try:
        present[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps([platform.python_version(), present]))
"""


class PythonFacts(NamedTuple):
    """A Python's version, and the versions of packages in it."""

    version: str
    packages: Mapping[str, str]


class NotInstalled(SeamlessFlowError):
    """An environment's packages could not be installed."""


def directory(package: KnownEnvironment) -> Path:
    """Return where an environment's packages lie, made or not."""
    lock = hashlib.sha256(package.lock.read_bytes()).hexdigest()[:12]
    major, minor = max(sys.version_info[:2], package.python)
    return default_cache() / "environments" / f"{package.name}-{major}.{minor}-{lock}"


def is_installed(package: KnownEnvironment) -> bool:
    """Return whether its packages are there."""
    return (directory(package) / _MADE).exists()


def versions(package: KnownEnvironment) -> Mapping[str, str]:
    """Return the versions of the packages that are shown; empty if it is not installed."""
    libraries = (directory(package) / "lib").glob("python*/site-packages")
    present = {
        str(distribution.metadata["Name"]).lower().replace("_", "-"): distribution.version
        for library in libraries
        for distribution in distributions(path=[str(library)])
    }
    return {name: present[name] for name in package.packages if name in present}


def python_facts(python: Path, package: KnownEnvironment | None) -> PythonFacts:
    """Return a Python's version, and those of the package's distributions in it.

    Raises `EnvironmentUnusable` if it does not run.
    """
    names = () if package is None else package.packages
    try:
        asked = subprocess.run(  # nosec B603 # a list of our own, no shell
            [python, "-I", "-c", _ASK, *names], capture_output=True, text=True, timeout=_VERSION_S
        )
        return PythonFacts(*json.loads(asked.stdout))
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise EnvironmentUnusable(f"{python}: {error}") from error


def other_versions(package: KnownEnvironment, present: Mapping[str, str]) -> str:
    """Return in words which packages differ from the lock's versions; empty if none does."""
    lock = package.lock.read_text(encoding="utf-8")
    words = []
    for name in package.packages:
        locked = re.search(rf"^{re.escape(name)}==(\S+)", lock, re.MULTILINE)
        if locked is not None and present.get(name) != locked[1]:
            is_there = f"{name} {present[name]}" if name in present else f"no {name}"
            words.append(f"{is_there}, and the adapter is made for {locked[1]}")
    return "; ".join(words)


def install(package: KnownEnvironment, show: Callable[[str], object]) -> Path:
    """Make the environment if it is not there, and return its Python. Raises `NotInstalled`.

    `show` gets lines of progress. If another process installs the same, wait for it.
    """
    home = directory(package)
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / _MADE).exists():
            show(f"installing the packages of {package.name} in {home}")
            _run(making(package, home))
            python = str(home / "bin" / "python")
            _run(_installing(python, package.lock), show)
            (home / _MADE).touch()
    return home / "bin" / "python"


def environment_spec(
    agents: AgentsSection, environment: Mapping[str, str], log_file: Path
) -> EnvironmentSpec:
    """Return the spec that an agent's environment is started from.

    Raises `EnvironmentUnknown`, and `EnvironmentUnusable` if it is not installed, or if the Python
    that is named does not run.
    """
    name = agents.environment
    adapter = adapter_of(name)
    python = agents.environment_python
    if python is None and name not in KNOWN:
        python = Path(sys.executable)
    elif python is None:
        if not is_installed(KNOWN[name]):
            command = f"seamlessflow environments install {name}"
            raise EnvironmentUnusable(f"{name} is not installed: {command}")
        python = directory(KNOWN[name]) / "bin" / "python"
    note = ""
    if agents.environment_python is not None and name in KNOWN:
        facts = python_facts(python, KNOWN[name])
        if others := other_versions(KNOWN[name], facts.packages):
            note = f"{python} has {others}"
    roles = tuple(agents.roles)
    return EnvironmentSpec(
        name, python, adapter, agents.settings, environment, log_file, roles, note
    )


def making(package: KnownEnvironment, home: Path) -> list[str]:
    """Return the command that makes the environment, without its packages.

    It uses this Python if that is new enough. Otherwise uv finds or downloads one. Raises
    `NotInstalled` if uv is missing too.
    """
    if sys.version_info[:2] >= package.python:
        return [sys.executable, "-m", "venv", str(home)]
    oldest = ".".join(map(str, package.python))
    if uv := _uv():
        return [uv, "venv", "--allow-existing", "--python", f">={oldest}", str(home)]
    raise NotInstalled(f"{package.name} needs Python {oldest} or newer, or uv, which brings it")


def _uv() -> str | None:
    return shutil.which(Path(sys.executable).with_name("uv")) or shutil.which("uv")


def _installing(python: str, lock: Path) -> list[str]:
    """Return the command that installs a lock: with uv, which is fast, or else with pip."""
    options = ["--require-hashes", "-r", str(lock)]
    if uv := _uv():
        return [uv, "pip", "install", "--python", python, *options]
    return [python, "-m", "pip", "install", "--no-deps", "--disable-pip-version-check", *options]


def _run(command: list[str], show: Callable[[str], object] | None = None) -> None:
    process = subprocess.Popen(  # nosec B603 # a list of our own, no shell
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    lines: list[str] = []
    for line in process.stdout or ():
        lines.append(line.rstrip())
        if show is not None and line.strip():
            show(lines[-1])
    if status := process.wait():
        tail = "\n".join(lines[-20:])
        raise NotInstalled(f"{command[0]} ended with status {status}\n{tail}")
