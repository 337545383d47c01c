"""A directory that appears under its name complete and on disk, or not at all."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_directory(target: Path, sync: bool = True) -> Iterator[Path]:
    """A draft to fill; it becomes `target` at the end of the body, replacing one of that name.

    The draft lies beside `target` as `.<name>.<random>` and is gone after an error. `sync` off: not
    forced to disk.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    draft.mkdir()
    try:
        yield draft
        if sync:
            for path in (*draft.iterdir(), draft):
                _sync(path)
        remove(target)
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    if sync:
        _sync(target.parent)


def remove(path: Path) -> None:
    """Takes a directory away under its name at once, so that nobody sees half of it."""
    if path.exists():
        grave = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        path.rename(grave)
        shutil.rmtree(grave)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
