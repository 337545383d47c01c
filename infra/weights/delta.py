"""Weight deltas: directories with one version's changes against another version, its base.

A delta has each safetensors file's changed elements (`infra/weights/changes.py`). It has another
file as a whole if that changed, and else not at all. The delta's own manifest, of kind delta, names
the base by its manifest's hash. Beside it is the manifest of the version to which the delta leads.
The files that a base and deltas make are compared with that manifest one by one. So wrong bytes
cannot pass, whatever a delta holds.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seamlessflow.infra.weights.changes import ChangesInvalid, apply_changes, write_changes
from seamlessflow.infra.weights.manifest import (
    MANIFEST,
    Manifest,
    WeightsInvalid,
    adopt,
    read_manifest,
    sha256,
    verify,
    write_manifest,
)

FULL = "full.manifest.json"
"""Manifest of the version to which a delta leads."""

_CHANGES = ".changes"


def write_delta(base: Path, new: Path, draft: Path) -> int:
    """Fill an empty directory with the delta between two versions; return its size in bytes.

    Raises `WeightsInvalid` for a version whose manifest or safetensors cannot be read, `OSError`.
    """
    before = read_manifest(base)
    after = read_manifest(new)
    for name, digest in after.files.items():
        same = after.hash == before.hash and before.files.get(name) == digest
        if not same and not _changed(base, new, name, draft):
            shutil.copyfile(new / name, draft / name)
    shutil.copyfile(new / MANIFEST, draft / FULL)
    against = {"base_version": before.version, "base_manifest_sha256": sha256(base / MANIFEST)}
    write_manifest(draft, replace(after, kind="delta", **against))  # type: ignore[arg-type]
    return sum(path.stat().st_size for path in draft.iterdir())


def read_delta(directory: Path, version: int, manifest_sha256: str) -> Manifest:
    """Return the manifest of a delta that leads to a version, after comparing all its files.

    Raises `WeightsInvalid`.
    """
    manifest = verify(directory)
    if manifest.kind != "delta" or manifest.base_version is None:
        raise WeightsInvalid(str(directory), MANIFEST, f"is of kind {manifest.kind}, not a delta")
    if FULL not in manifest.files or sha256(directory / FULL) != manifest_sha256:
        reason = f"does not lead to version {version} as it was published"
        raise WeightsInvalid(str(directory), MANIFEST, reason)
    return manifest


def make_version(root: Path, base: Path, deltas: Sequence[Path]) -> Path:
    """Make a version's directory below `root` from the version in `base`; return it.

    `deltas`, at least one, lead from `base` to it, the oldest first. Raises `WeightsInvalid` if one
    of them is against another version, or the result is not what was published.
    """
    at = sha256(base / MANIFEST)
    for delta in deltas:
        wanted = read_manifest(delta).base_manifest_sha256
        if wanted != at:
            reason = f"is against the version with manifest {wanted}, not {at} of {base}"
            raise WeightsInvalid(str(delta), MANIFEST, reason)
        at = sha256(delta / FULL)
    full = read_manifest(deltas[-1], FULL)

    def fill(draft: Path) -> None:
        for name in full.files:
            _make(name, base, deltas, draft / name)

    return adopt(root, deltas[-1] / FULL, fill)


def _changed(base: Path, new: Path, name: str, draft: Path) -> bool:
    """Write a file's changed elements; return False if that is not possible."""
    if not name.endswith(".safetensors") or not (base / name).is_file():
        return False
    try:
        return write_changes(base / name, new / name, draft / f"{name}{_CHANGES}")
    except ChangesInvalid as error:
        raise WeightsInvalid(str(new), name, str(error)) from error


def _make(name: str, base: Path, deltas: Sequence[Path], target: Path) -> None:
    """Write a file from the newest directory that has it whole, and the changes since."""
    changes: list[Path] = []
    for directory in reversed([base, *deltas]):
        if (directory / name).is_file():
            break
        if (file := directory / f"{name}{_CHANGES}").is_file():
            changes.insert(0, file)
    try:
        if changes:
            apply_changes(directory / name, changes, target)
        else:
            shutil.copyfile(directory / name, target)
    except (ChangesInvalid, FileNotFoundError) as error:
        raise WeightsInvalid(str(deltas[-1]), name, f"cannot be made: {error}") from error
