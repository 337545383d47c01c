"""Files that appear under their names complete and on disk, or not at all."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from seamlessflow.infra.disk.flush import flush_to_disk
from seamlessflow.infra.disk.full import room_for


@contextmanager
def whole_file(target: Path, shared: bool = False) -> Iterator[BinaryIO]:
    """Yield a draft to write. At the end of the body it becomes `target`, replacing an old one.

    The draft stands beside `target` as `.<name>`. The next attempt overwrites what a killed process
    left. The draft is deleted after an error. `shared`: other processes may write the same file at
    the same time, so the draft's name is random. Raises `DiskFull`.
    """
    random = f".{uuid.uuid4().hex[:8]}" if shared else ""
    draft = target.with_name(f".{target.name}{random}")
    try:
        with room_for(target, draft):
            with draft.open("wb") as file:
                yield file
            name_whole(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def name_whole(draft: Path, target: Path) -> None:
    """Give a closed file its name, replacing an old one; wait until both are on the disk."""
    flush_to_disk(draft)
    draft.replace(target)
    flush_to_disk(target.parent)
