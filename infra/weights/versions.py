"""A policy's versions: as records name them, on disk, how long they stay, the files in them.

The trainer calls `retain` after each publication; readers hold a `lease` while they verify and
load. A reader that may not write here relies on `FEWEST_KEPT`. Past versions that another policy
shows have a lease without an end (`keep`). Files that manifests and checkpoints name must stand in
the same directory.
"""

import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from seamlessflow.infra.disk import remove_directory
from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.schemas.records import PolicyWeights, WeightsPublished

FEWEST_KEPT = 3
"""A reader without a lease has the time that this many publications take."""

LEASE_MAX_AGE_S = 900.0
"""An older lease belongs to a reader that died."""

_LEASES = ".leases"
_KEPT = ".kept"
"""Suffix in the name of a lease without an end."""
_PREFIX = "version-"
_log = logging.getLogger(__name__)


class WeightsGone(SeamlessFlowError):
    """A version's directory was deleted before a reader had read it."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        super().__init__(f"weights in {directory} were deleted before they were read")


class PathOutside(SeamlessFlowError):
    """A path that leads out of the directory in which it must stay."""

    def __init__(self, root: str, path: str) -> None:
        self.root = root
        self.path = path
        super().__init__(f"{path!r} leads out of {root}")


@dataclass(frozen=True, slots=True)
class PublishedWeights:
    """A policy's published version; equal to one with the same content, wherever that is."""

    version: int
    step: int = field(compare=False)
    """Count of optimizer steps that made the weights."""
    directory: str = field(compare=False)
    """The published directory, or its copy on this host."""
    manifest_sha256: str

    @classmethod
    def from_record(cls, record: WeightsPublished | PolicyWeights) -> "PublishedWeights":
        """Return the version that a record on `control` or `fleet` names."""
        return cls(record.version, record.step, record.directory, record.manifest_sha256)

    @property
    def path(self) -> Path:
        """The directory as a path."""
        return Path(self.directory)


def version_directory(root: Path, version: int) -> Path:
    """Return a version's directory."""
    return root / f"{_PREFIX}{version:08d}"


def versions(root: Path) -> dict[int, Path]:
    """Return the versions on disk, oldest first. Raises `PathOutside` for a link to elsewhere."""
    by_number = {
        int(path.name.removeprefix(_PREFIX)): inside(root, path.name)
        for path in root.glob(f"{_PREFIX}*")
        if path.name.removeprefix(_PREFIX).isdigit()
    }
    return dict(sorted(by_number.items()))


def retain(root: Path, keep: int, by_age: bool = False) -> list[int]:
    """Delete all but the newest `keep` (at least `FEWEST_KEPT`) versions; return the deleted ones.

    A version under a lease stays until a later call. Also deletes drafts of publications that
    failed, so only the one publisher of `root` may call it. `by_age`: the newest are those made
    last, whatever their numbers.
    """
    for draft in root.glob(f".{_PREFIX}*"):
        shutil.rmtree(draft)
    deleted = []
    present = list(versions(root).items())
    if by_age:
        present.sort(key=lambda entry: entry[1].stat().st_mtime_ns)
    for version, path in present[: -max(keep, FEWEST_KEPT)]:
        if path.name not in _leased(root):  # asked for each: a deletion may take seconds
            remove_directory(path)
            deleted.append(version)
    return deleted


@contextmanager
def lease(directory: Path) -> Iterator[None]:
    """Keep a version from being deleted while the body runs, for at most `LEASE_MAX_AGE_S`.

    The body finds out if it was deleted before. A directory that is no version is left alone.
    """
    mark = _mark(directory)
    try:
        yield
    finally:
        if mark is not None:
            with suppress(OSError):
                mark.unlink()


def keep(directory: Path) -> None:
    """Keep a version from ever being deleted. Raises `OSError`."""
    mark = directory.parent / _LEASES / f"{directory.name}{_KEPT}"
    mark.parent.mkdir(exist_ok=True)
    mark.touch()


def is_past(step: int, before: int | None, every: int) -> bool:
    """Return whether a version stays: one every `every` optimizer steps does.

    `step` is the version's, `before` the previous version's, or None for the first one. A skipped
    step has no version: then the next version stays.
    """
    return before is None or step // every > before // every


def inside(root: Path, name: str) -> Path:
    """Return the path of a file in `root` itself, by its name.

    Raises `PathOutside` for the name of anything else: an absolute path, one with directories, or a
    link to another place.
    """
    path = root / name
    plain = name not in ("", os.curdir, os.pardir) and os.path.basename(name) == name
    if not plain or "\0" in name or path.resolve().parent != root.resolve():
        raise PathOutside(str(root), name)
    return path


def _mark(directory: Path) -> Path | None:
    """Make a lease's file, or return None if there is no version or it cannot be made."""
    if not (directory.name.startswith(_PREFIX) and directory.is_dir()):
        return None
    mark = directory.parent / _LEASES / f"{directory.name}.{uuid.uuid4().hex}"
    try:
        mark.parent.mkdir(exist_ok=True)
        mark.touch()
    except OSError as error:  # such as a directory that this machine may only read
        _log.info("%s is read without a lease: %s", directory, error)
        return None
    return mark


def _leased(root: Path) -> set[str]:
    """Return the versions under a lease, by name; delete the marks that dead readers left."""
    oldest = time.time() - LEASE_MAX_AGE_S
    leased = set()
    for mark in (root / _LEASES).glob(f"{_PREFIX}*"):
        if mark.name.endswith(_KEPT) or _made_at(mark) > oldest:
            leased.add(mark.name.rpartition(".")[0])
        else:
            with suppress(OSError):  # it may belong to another user
                mark.unlink()
    return leased


def _made_at(mark: Path) -> float:
    try:
        return mark.stat().st_mtime
    except FileNotFoundError:
        return 0.0
