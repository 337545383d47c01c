"""Weights on disk: the directory of one policy version, with a manifest of its files' hashes.

The trainer writes it (`publish`), rollout processes read it (`verify`). A directory appears under
its name complete and on disk, or not at all; `infra/weights/versions.py` decides which ones stay.
Imports no torch: the manifest lists files, not tensors.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from infra.disk.whole_directory import whole_directory
from infra.errors import SeamlessFlowError
from infra.weights.adapter import CONFIG, BaseModel
from infra.weights.inside import PathOutside, inside
from infra.weights.versions import version_directory

MANIFEST = "manifest.json"
_CHUNK_BYTES = 4 * 1024 * 1024

Kind = Literal["full", "delta", "adapter"]


class WeightsInvalid(SeamlessFlowError):
    """A weights directory is not what its manifest says; `file` is the first one that differs."""

    def __init__(self, directory: str, file: str, reason: str) -> None:
        self.directory = directory
        self.file = file
        self.reason = reason
        super().__init__(f"weights in {directory}: {file}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Contents of a weights directory."""

    policy: str
    version: int
    optimizer_step: int
    """Number of optimizer steps that led to the weights."""

    lineage: str
    dtype: str
    """Element type of the tensors, such as float32 or bfloat16."""

    kind: Kind = "full"
    base_version: int | None = None
    """Version to which a delta is applied."""

    base_model: str | None = None
    """Directory of the model that an adapter belongs to, which never changes."""

    base_hash: str | None = None
    """Hash of that model's tensors, as `tensors_hash` has it."""

    files: Mapping[str, str] = field(default_factory=dict)
    """Hex SHA-256 of every file of the directory but the manifest, by name."""

    def to_json(self) -> bytes:
        """Return canonical JSON; what only an adapter has is left out of others."""
        values = asdict(self)
        if self.base is None:
            del values["base_model"], values["base_hash"]
        return json.dumps(values, sort_keys=True, indent=1).encode()

    @property
    def base(self) -> BaseModel | None:
        """Return the model that an adapter belongs to; None of other kinds."""
        if self.base_model is None or self.base_hash is None:
            return None
        return BaseModel(self.base_model, self.base_hash)


def publish(
    root: Path, facts: Manifest, fill: Callable[[Path], None], sync: bool = True
) -> tuple[Path, str]:
    """Make the directory of `facts.version` below `root`; return it and its manifest's hex SHA-256.

    `fill` writes the files into the directory it is given; `facts.files` is computed here. A
    directory of the same version is replaced. `sync` False: not forced to disk (for tests).
    """
    target = version_directory(root, facts.version)
    with whole_directory(target, sync) as draft:
        fill(draft)
        digest = write_manifest(draft, facts)
    return target, digest


def write_manifest(directory: Path, facts: Manifest) -> str:
    """Write the manifest of all files in `directory`; return the manifest's own hex SHA-256."""
    names = sorted(path.name for path in directory.iterdir() if path.name != MANIFEST)
    content = replace(facts, files={name: sha256(directory / name) for name in names}).to_json()
    (directory / MANIFEST).write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest without reading the files. Raises `WeightsInvalid`."""
    try:
        fields = json.loads((directory / MANIFEST).read_bytes())
        manifest = Manifest(**fields)
    except (OSError, ValueError, TypeError) as error:
        raise WeightsInvalid(str(directory), MANIFEST, str(error)) from error
    for name in manifest.files:
        try:
            inside(directory, name)
        except PathOutside as error:
            raise WeightsInvalid(str(directory), MANIFEST, f"names {error}") from error
    if manifest.kind not in get_args(Kind):
        raise WeightsInvalid(str(directory), MANIFEST, f"unknown kind {manifest.kind!r}")
    if (manifest.kind == "adapter") != (manifest.base is not None):
        raise WeightsInvalid(
            str(directory), MANIFEST, f"kind {manifest.kind}, base {manifest.base}"
        )
    return manifest


def base_of(directory: Path) -> BaseModel | None:
    """Return the model that a directory's adapter belongs to; None if it holds a whole model.

    Raises `WeightsInvalid`.
    """
    return read_manifest(directory).base if (directory / CONFIG).exists() else None


def verify(directory: Path, manifest_sha256: str | None = None) -> Manifest:
    """Return the manifest, after comparing every file with it.

    `manifest_sha256` is the hash of the manifest itself, from `WeightsPublished`. Raises
    `WeightsInvalid` for a file that is missing, differs or stands elsewhere, and for a safetensors
    file that the manifest does not name.
    """
    manifest = read_manifest(directory)
    if manifest_sha256 is not None:
        _compare(directory, MANIFEST, manifest_sha256)
    for name, digest in manifest.files.items():
        _compare(directory, name, digest)
    for path in directory.glob("*.safetensors"):
        if path.name not in manifest.files:
            raise WeightsInvalid(str(directory), path.name, "is not in the manifest")
    return manifest


def sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _compare(directory: Path, name: str, expected: str) -> None:
    try:
        actual = sha256(directory / name)
    except OSError as error:
        raise WeightsInvalid(str(directory), name, str(error)) from error
    if actual != expected:
        raise WeightsInvalid(
            str(directory), name, f"has SHA-256 {actual}, the manifest says {expected}"
        )
