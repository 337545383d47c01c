"""Versions of small weights on disk, of which each one changes a few elements of the last."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from seamlessflow.infra.weights.manifest import MANIFEST, Manifest, publish, sha256

Values = NDArray[np.uint16]


def facts(version: int) -> Manifest:
    return Manifest(
        policy="p", version=version, optimizer_step=version, lineage="a", dtype="", hash="blake3"
    )


@dataclass
class Versions:
    """Published versions below `root`; `share` of the elements changes from one to the next."""

    root: Path
    share: float = 0.02
    elements: int = 60_000
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    count: int = -1
    kind: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the manifest that say the kind, if it is not a whole model."""

    def __post_init__(self) -> None:
        self.values: Values = self.random.integers(0, 2**16, self.elements, np.uint16)

    def next(self) -> Path:
        """Publish the next version and return its directory."""
        self.count += 1
        if self.count:
            changed = self.random.random(self.elements) < self.share
            self.values[changed] += np.uint16(1)
        kind = replace(facts(self.count), **self.kind)
        return publish(self.root, kind, self._fill, sync=False).weights.path

    def _fill(self, draft: Path) -> None:
        whole = np.arange(5, dtype=np.float32) + self.count
        tensors: dict[str, NDArray[Any]] = {
            "a": self.values[:1001],
            "b": self.values[1001:],
            "c": whole,
        }
        save_file(tensors, draft / "model.safetensors")
        (draft / "config.json").write_text("{}")
        (draft / "generation.json").write_text(f"{self.count}")


def digest(directory: Path) -> str:
    """Return the hash of a version's manifest."""
    return sha256(directory / MANIFEST)


def content(directory: Path) -> dict[str, bytes]:
    """Return the bytes of all files."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}
