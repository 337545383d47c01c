"""Which versions of a policy lie on disk, and for how long.

The publisher of a root calls `retain` after each publication; readers hold a `lease` while they
load, or rely on `FEWEST_KEPT`.
"""

import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.weights.whole_directory import remove

FEWEST_KEPT = 3
"""A reader without a lease has as long as this many publications take."""

LEASE_MAX_AGE_S = 900.0
"""A lease older than this belongs to a reader that died."""

_LEASES = ".leases"
_PREFIX = "version-"


def version_directory(root: Path, version: int) -> Path:
    """Where a version lies."""
    return root / f"{_PREFIX}{version:08d}"


def versions(root: Path) -> dict[int, Path]:
    """The versions that are there, oldest first."""
    found = {
        int(path.name.removeprefix(_PREFIX)): path
        for path in root.glob(f"{_PREFIX}*")
        if path.name.removeprefix(_PREFIX).isdigit()
    }
    return dict(sorted(found.items()))


def retain(root: Path, keep: int) -> list[int]:
    """Deletes all but the newest `keep` (at least `FEWEST_KEPT`) versions; returns those it
    deleted.

    A version under a lease stays until a later call. Drafts of a publication that died go as well,
    so only the one publisher of `root` may call it.
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
    """Keeps `directory` from being deleted while the body runs, `LEASE_MAX_AGE_S` at most."""
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
