"""Files that several directories have without taking their space twice."""

import os
import shutil
from pathlib import Path


def link_or_copy(source: Path, target: Path) -> None:
    """Make `target` a hard link to a file, or a copy of it where the file system has none.

    Of a symbolic link it is what that leads to. Raises `OSError`.
    """
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
