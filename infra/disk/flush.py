"""Forcing of what was written to the disk, so that it outlives a loss of power."""

import os
from pathlib import Path


def flush_to_disk(path: Path) -> None:
    """Wait until a file's content, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
