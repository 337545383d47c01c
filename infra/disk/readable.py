"""Files that are for as many users as the directory that they are in."""

from pathlib import Path


def readable(path: Path) -> None:
    """Let all read the file who may read its directory; safetensors writes it for its owner alone.

    To be called before a stamp of the file is taken, which changes. Raises `OSError`.
    """
    path.chmod(path.parent.stat().st_mode & 0o666)
