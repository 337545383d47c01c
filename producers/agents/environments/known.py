"""Environment packages that this project has an adapter for, and the program that hosts them. Pure.

Each has its own virtual environment (`venvs.py`), since their requirements conflict with each other
and with ours. A user's own adapter is a file, which runs in the Python that
`agents.environment_python` names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.faults import suggestion

INSIDE = Path(__file__).parent / "inside"
HOST = INSIDE / "host.py"
LOCKS = Path(__file__).parent / "locks"


class EnvironmentUnknown(SeamlessFlowError):
    """No adapter has this name."""

    lasting = True


@dataclass(frozen=True, slots=True)
class KnownEnvironment:
    """An environment package with its adapter."""

    name: str
    packages: tuple[str, ...]
    """Distributions whose versions are shown."""
    what: str
    python: tuple[int, int] = (3, 11)
    """Oldest Python that the packages run on."""

    @property
    def adapter(self) -> Path:
        """The adapter's file."""
        return INSIDE / f"{self.name}.py"

    @property
    def lock(self) -> Path:
        """File that lists all packages in its environment, with hashes."""
        return LOCKS / f"{self.name}.txt"


KNOWN: Mapping[str, KnownEnvironment] = {
    package.name: package
    for package in (
        KnownEnvironment(
            "reasoning_gym", ("reasoning-gym",), "106 data sets of questions, made by code"
        ),
        KnownEnvironment("textarena", ("textarena",), "text games, for one player or for several"),
        KnownEnvironment("gymnasium", ("gymnasium",), "worlds with text and numbered actions"),
        KnownEnvironment("verifiers", ("verifiers",), "task sets of the hub, or of your own"),
        KnownEnvironment("openenv", ("openenv",), "worlds behind a server, over HTTP"),
        KnownEnvironment(
            "inspect_ai", ("inspect-ai",), "tasks of Inspect, with their solvers and scorers"
        ),
        KnownEnvironment(
            "nemo_gym", ("openai",), "rows of a NeMo Gym resources server that runs elsewhere"
        ),
        KnownEnvironment(
            "mini_swe_agent", ("mini-swe-agent",), "repairs of repositories, by their tests"
        ),
        KnownEnvironment(
            "harbor", ("harbor",), "task directories of Harbor, with its terminal agent", (3, 12)
        ),
    )
}


def adapter_of(name: str) -> Path:
    """Return a named adapter's file, or the user's own file. Raises `EnvironmentUnknown`."""
    if name in KNOWN:
        return KNOWN[name].adapter
    if name.endswith(".py"):
        return Path(name).absolute()
    near = suggestion(name, KNOWN)
    raise EnvironmentUnknown(f"{name!r} is not {', '.join(KNOWN)} or a file FILE.py{near}")
