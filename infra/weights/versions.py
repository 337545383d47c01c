"""Versions of a policy on disk, and how long they stay.

The trainer calls `retain` after each publication; readers hold a `lease` while they load, or rely
on `FEWEST_KEPT`.
"""

import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.disk.whole_directory import remove
from infra.weights.inside import inside

FEWEST_KEPT = 3
"""A reader without a lease has the time that this many publications take."""

LEASE_MAX_AGE_S = 900.0
"""An older lease belongs to a reader that died."""

_LEASES = ".leases"
_PREFIX = "version-"


def version_directory(root: Path, version: int) -> Path:
    """Return the directory of a version."""
    return root / f"{_PREFIX}{version:08d}"


def versions(root: Path) -> dict[int, Path]:
    """Return the versions on disk, oldest first. Raises `PathOutside` for a link to elsewhere."""
    found = {
        int(path.name.removeprefix(_PREFIX)): inside(root, path.name)
        for path in root.glob(f"{_PREFIX}*")
        if path.name.removeprefix(_PREFIX).isdigit()
    }
    return dict(sorted(found.items()))


def retain(root: Path, keep: int) -> list[int]:
    """Delete all but the newest `keep` (at least `FEWEST_KEPT`) versions; return the deleted ones.

    A version under a lease stays until a later call. Also deletes drafts of publications that
    failed, so only the one publisher of `root` may call it.
    """
    for draft in root.glob(f".{_PREFIX}*"):
        shutil.rmtree(draft)
    superseded = list(versions(root).items())[: -max(keep, FEWEST_KEPT)]
    leased = _leased(root)
    deleted = [(version, path) for version, path in superseded if path.name not in leased]
    for _, path in deleted:
        remove(path)
    return [version for version, _ in deleted]


@contextmanager
def lease(directory: Path) -> Iterator[None]:
    """Keep `directory` from being deleted while the body runs, for at most `LEASE_MAX_AGE_S`."""
    leases = directory.parent / _LEASES
    leases.mkdir(exist_ok=True)
    mark = leases / f"{directory.name}.{uuid.uuid4().hex}"
    mark.touch()
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def _leased(root: Path) -> set[str]:
    oldest = time.time() - LEASE_MAX_AGE_S
    marks = (mark for mark in (root / _LEASES).glob(f"{_PREFIX}*") if _made_at(mark) > oldest)
    return {mark.name.rpartition(".")[0] for mark in marks}


def _made_at(mark: Path) -> float:
    try:
        return mark.stat().st_mtime
    except FileNotFoundError:
        return 0.0
