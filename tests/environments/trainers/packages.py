"""Packages of other trainers: `python -m tests.environments.trainers.packages` installs them.

Each lies in an environment of its own in the user's cache, as environment packages do. TRL lies in
that of `scripts/peers`.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from seamlessflow.producers.agents.environments.known import KNOWN, KnownEnvironment
from seamlessflow.producers.agents.environments.venvs import directory, install, is_installed
from tests.paths import ROOT


@dataclass(frozen=True, slots=True)
class TrainerPackage(KnownEnvironment):
    """A package that is no environment of a run."""

    @property
    def lock(self) -> Path:
        """File of all packages of its environment, with hashes."""
        return ROOT / "requirements" / "trainers" / f"{self.name}.txt"


RLLM = TrainerPackage(
    "rllm_model_gateway", ("rllm-model-gateway",), "rLLM's gateway, which keeps tokens of calls"
)
VERIFIERS = KNOWN["verifiers"]


def python_of(package: KnownEnvironment) -> Path:
    """Return a package's Python. Fails, never skips, if it is not installed."""
    assert is_installed(package), f"scripts/test-environments installs {package.name}"
    return directory(package) / "bin" / "python"


def python_of_peers() -> Path:
    """Return the Python that has TRL. Fails, never skips, if it is not there."""
    python = ROOT / os.environ.get("SEAMLESSFLOW_PEERS_VENV", ".venv-peers") / "bin" / "python"
    assert python.exists(), "scripts/peers installs TRL"
    return python


if __name__ == "__main__":
    install(RLLM, lambda line: print(line, file=sys.stderr))
