"""Permissions of files that other users of a shared directory read, such as published weights."""

from pathlib import Path


def open_to_readers(file: Path) -> None:
    """Let those read a file who may read its directory, and write it who may write there.

    safetensors makes files that only their owner may read.
    """
    file.chmod(file.parent.stat().st_mode & 0o666)
