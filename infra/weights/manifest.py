"""Weights on disk: one policy version's directory, with a manifest of its files' hashes.

The trainer writes it (`publish`), rollout processes read it (`verify`), each file once a host
(`infra/weights/hashing.py`). A directory appears under its name complete and on disk, or not at
all; `infra/weights/versions.py` decides which ones stay. Imports no torch: the manifest lists
files, not tensors.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

from seamlessflow.infra.disk import whole_directory
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.infra.weights.adapter import CONFIG, BaseModel
from seamlessflow.infra.weights.hashing import (
    ByteTaker,
    HashedFile,
    HashName,
    HostMarks,
    Stamp,
    file_hash,
    hash_files,
    stamp,
)
from seamlessflow.infra.weights.tensors import TensorHasher, hash_of
from seamlessflow.infra.weights.versions import (
    PathOutside,
    PublishedWeights,
    inside,
    version_directory,
)

MANIFEST = "manifest.json"

ManifestKind = Literal["full", "delta", "adapter"]


class WeightsInvalid(SeamlessFlowError):
    """A weights directory is not what its manifest says; `file` is the first one that differs.

    At its next start a running process may see the whole directory, or newer weights: files may
    still be on the way to this host. So the error lasts only before the process is ready.
    """

    def __init__(self, directory: str, file: str, reason: str) -> None:
        self.directory = directory
        self.file = file
        self.reason = reason
        super().__init__(f"weights in {directory}: {file}: {reason}")


class ManifestUnknown(WeightsInvalid):
    """A manifest that a newer release wrote; `reason` says what this release does not know."""

    lasting = True

    def __init__(self, directory: str, file: str, reason: str) -> None:
        super().__init__(directory, file, f"{reason}: a newer release wrote it, upgrade this one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A weights directory's contents."""

    policy: str
    version: int
    optimizer_step: int
    """Count of optimizer steps that led to the weights."""

    lineage: str
    dtype: str
    """The tensors' element type, such as float32 or bfloat16."""

    kind: ManifestKind = "full"
    base_version: int | None = None
    """Version to which a delta is applied."""

    base_model: str | None = None
    """Directory of the model that an adapter belongs to, which never changes."""

    base_hash: str | None = None
    """Hash of that model's tensors, as `tensors_hash` has it."""

    base_manifest_sha256: str | None = None
    """For a delta, the hex SHA-256 of the base version's manifest."""

    files: Mapping[str, str] = field(default_factory=dict)
    """Hex hash of every file in the directory but the manifest, by name."""

    hash: HashName = "sha256"
    """Hash function for `files`; releases before this field know only SHA-256."""

    def to_json(self) -> bytes:
        """Return canonical JSON.

        Some fields are only for an adapter or a delta, or for another hash than SHA-256. Other
        manifests leave them out, so that they read like earlier releases' manifests.
        """
        values = asdict(self)
        if self.base is None:
            del values["base_model"], values["base_hash"]
        if self.hash == "sha256":
            del values["hash"]
        if self.base_manifest_sha256 is None:
            del values["base_manifest_sha256"]
        return json.dumps(values, sort_keys=True, indent=1).encode()

    @property
    def base(self) -> BaseModel | None:
        """The model that an adapter belongs to, or None for other kinds."""
        if self.base_model is None or self.base_hash is None:
            return None
        return BaseModel(self.base_model, self.base_hash)


_FIELDS = {member.name for member in fields(Manifest)}


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version that was just published."""

    weights: PublishedWeights
    tensors: Sequence[TensorHasher]
    """Hashers for its safetensors files, which have taken all bytes."""

    @property
    def tensors_hash(self) -> str:
        """Hash as by `tensors_hash` in `infra/weights/tensors.py`. Raises `ValueError`."""
        return hash_of(
            {name: digest for file in self.tensors for name, digest in file.hexdigests().items()}
        )


def publish(
    root: Path, facts: Manifest, fill: Callable[[Path], None], sync: bool = True
) -> NewVersion:
    """Make the directory of `facts.version` below `root`.

    `fill` writes the files into the directory it is given; `facts.files` is computed here. A
    directory for the same version is replaced. `sync` False: not forced to disk (for tests). The
    version counts as checked on this host: its files were read back from where others read them.
    """
    target = version_directory(root, facts.version)
    with whole_directory(target, sync) as draft:
        fill(draft)
        tensors = {path: TensorHasher() for path in draft.glob("*.safetensors")}
        digest, hashed = write_manifest(draft, facts, tensors)
    marks = HostMarks(target)
    with marks.turn():
        marks.write(digest, {name: file.stamp for name, file in hashed.items()})
    weights = PublishedWeights(facts.version, facts.optimizer_step, str(target), digest)
    return NewVersion(weights, list(tensors.values()))


def adopt(root: Path, manifest: Path, fill: Callable[[Path], None]) -> Path:
    """Make the directory of a version from elsewhere, whose manifest is in the file; return it.

    `fill` writes the files into the directory it is given. It is not forced to disk: after a power
    loss it fails `verify`. Raises `WeightsInvalid` if a file is not what the manifest says.
    """
    target = version_directory(root, read_manifest(manifest.parent, manifest.name).version)
    with whole_directory(target, sync=False) as draft:
        shutil.copyfile(manifest, draft / MANIFEST)
        fill(draft)
        facts = read_manifest(draft)
        digest = sha256(draft / MANIFEST)
        stamps = _compare(draft, facts, list(facts.files))
    HostMarks(target).write(digest, stamps)
    return target


def write_manifest(
    directory: Path, facts: Manifest, beside: Mapping[Path, ByteTaker] = MappingProxyType({})
) -> tuple[str, Mapping[str, HashedFile]]:
    """Write a manifest for all files in `directory`; return its hex SHA-256 and their hashes.

    `beside`: as in `hash_files`.
    """
    names = sorted(path.name for path in directory.iterdir() if path.name != MANIFEST)
    hashed = hash_files([directory / name for name in names], facts.hash, beside)
    by_name = dict(zip(names, hashed, strict=True))
    content = replace(
        facts, files={name: file.hexdigest for name, file in by_name.items()}
    ).to_json()
    (directory / MANIFEST).write_bytes(content)
    return hashlib.sha256(content).hexdigest(), by_name


def read_manifest(directory: Path, file: str = MANIFEST) -> Manifest:
    """Return the manifest without reading the files. Raises `WeightsInvalid`."""
    try:
        values = json.loads((directory / file).read_bytes())
        newer = sorted(set(values) - _FIELDS) if isinstance(values, dict) else []
        if newer:
            raise ManifestUnknown(str(directory), file, f"unknown fields {', '.join(newer)}")
        manifest = Manifest(**values)
    except (OSError, ValueError, TypeError) as error:
        raise WeightsInvalid(str(directory), file, str(error)) from error
    for name in manifest.files:
        try:
            inside(directory, name)
        except PathOutside as error:
            raise WeightsInvalid(str(directory), MANIFEST, f"names {error}") from error
    if manifest.kind not in get_args(ManifestKind):
        raise ManifestUnknown(str(directory), MANIFEST, f"unknown kind {manifest.kind!r}")
    if (manifest.kind == "adapter") != (manifest.base is not None):
        raise WeightsInvalid(
            str(directory), MANIFEST, f"kind {manifest.kind}, base {manifest.base}"
        )
    if manifest.hash not in get_args(HashName):
        raise ManifestUnknown(str(directory), MANIFEST, f"unknown hash {manifest.hash!r}")
    return manifest


def base_of(directory: Path) -> BaseModel | None:
    """Return the model that a directory's adapter belongs to; None if it holds a whole model.

    Raises `WeightsInvalid`.
    """
    return read_manifest(directory).base if (directory / CONFIG).exists() else None


def verify(directory: Path, manifest_sha256: str | None = None) -> Manifest:
    """Return the manifest, after comparing every file with it.

    `manifest_sha256` is the manifest's own hash, from `WeightsPublished`. A file that this
    host has compared, and that has not been written since, is not read again. Raises
    `WeightsInvalid` for a missing, different or misplaced file, and for a safetensors file that the
    manifest does not name.
    """
    manifest = read_manifest(directory)
    digest = sha256(directory / MANIFEST)
    if manifest_sha256 not in (None, digest):
        reason = f"has SHA-256 {digest}, published was {manifest_sha256}"
        raise WeightsInvalid(str(directory), MANIFEST, reason)
    for path in directory.glob("*.safetensors"):
        if path.name not in manifest.files:
            raise WeightsInvalid(str(directory), path.name, "is not in the manifest")
    marks = HostMarks(directory)
    with marks.turn():
        stamps = marks.read(digest)
        changed = [name for name in manifest.files if stamps.get(name) != _stamp(directory, name)]
        if changed:
            marks.write(digest, {**stamps, **_compare(directory, manifest, changed)})
    return manifest


def present(root: Path) -> PublishedWeights | None:
    """Return version 0 below a directory, or None if it is not there.

    Raises `WeightsInvalid`.
    """
    directory = version_directory(root, 0)
    if not (directory / MANIFEST).is_file():
        return None
    step = read_manifest(directory).optimizer_step
    return PublishedWeights(0, step, str(directory), sha256(directory / MANIFEST))


def other_file(directory: Path, published: Path) -> str:
    """Return the first file that differs between a directory and the version made from it.

    Empty if no file differs. Raises `WeightsInvalid`.
    """
    manifest = read_manifest(published)
    names = sorted(path.name for path in directory.iterdir() if path.is_file())
    names = [name for name in names if name != MANIFEST]
    hashed = hash_files([directory / name for name in names], manifest.hash)
    hashes = {name: file.hexdigest for name, file in zip(names, hashed, strict=True)}
    differing = [
        name
        for name in sorted(hashes.keys() | manifest.files.keys())
        if hashes.get(name) != manifest.files.get(name)
    ]
    return differing[0] if differing else ""


def sha256(path: Path) -> str:
    """Return a file's hex SHA-256. Raises `OSError`."""
    return file_hash(path, "sha256")


def _stamp(directory: Path, name: str) -> Stamp:
    try:
        return stamp(directory / name)
    except OSError as error:
        raise WeightsInvalid(str(directory), name, str(error)) from error


def _compare(
    directory: Path, manifest: Manifest, names: Sequence[str]
) -> Mapping[str, Stamp | None]:
    """Compare files with the manifest; return their stamps. Raises `WeightsInvalid`."""
    try:
        hashed = hash_files([directory / name for name in names], manifest.hash)
    except OSError as error:
        file = Path(error.filename or "").name
        raise WeightsInvalid(str(directory), file, str(error)) from error
    for name, compared in zip(names, hashed, strict=True):
        if compared.hexdigest != manifest.files[name]:
            kind = {"sha256": "SHA-256", "blake3": "BLAKE3"}[manifest.hash]
            reason = f"has {kind} {compared.hexdigest}, the manifest says {manifest.files[name]}"
            raise WeightsInvalid(str(directory), name, reason)
    return {name: compared.stamp for name, compared in zip(names, hashed, strict=True)}
