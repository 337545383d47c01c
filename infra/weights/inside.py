"""Names of files in manifests and checkpoints, which must stand in the same directory."""

import os
from pathlib import Path

from seamlessflow.infra.errors import SeamlessFlowError


class PathOutside(SeamlessFlowError):
    """A path that leads out of the directory that it must stay in."""

    def __init__(self, root: str, path: str) -> None:
        self.root = root
        self.path = path
        super().__init__(f"{path!r} leads out of {root}")


def inside(root: Path, name: str) -> Path:
    """Return the path of a file of `root` itself, by its name.

    Raises `PathOutside` for the name of anything else: an absolute path, one with directories, or a
    link to another place.
    """
    path = root / name
    plain = name not in ("", os.curdir, os.pardir) and os.path.basename(name) == name
    if not plain or "\0" in name or path.resolve().parent != root.resolve():
        raise PathOutside(str(root), name)
    return path
