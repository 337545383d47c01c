"""Directories that appear under their names complete and on disk, or not at all."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seamlessflow.infra.disk.flush import flush_to_disk
from seamlessflow.infra.disk.full import room_for


@contextmanager
def whole_directory(target: Path, sync: bool = True) -> Iterator[Path]:
    """Yield a draft to fill; at the end of the body it becomes `target`, replacing an old one.

    The draft stands beside `target` as `.<name>.<random>` and is deleted after an error. `sync`
    False: not forced to disk. Raises `DiskFull`.
    """
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        with room_for(target, draft):
            draft.mkdir(parents=True)
            yield draft
            if sync:
                for path in (*draft.iterdir(), draft):
                    flush_to_disk(path)
            remove(target)  # a directory cannot be renamed over one that is not empty
            draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    if sync:
        flush_to_disk(target.parent)


def remove(path: Path) -> None:
    """Delete a directory so that it disappears under its name at once."""
    if path.exists():
        grave = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        path.rename(grave)
        shutil.rmtree(grave)
