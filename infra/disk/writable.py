"""Paths that a user names, for files to be written there."""

import os
from pathlib import Path
from tempfile import TemporaryFile

from seamlessflow.infra.errors import SettingsRejected


def make_writable(directory: Path, option: str) -> None:
    """Make the directory if it is missing.

    Raises `SettingsRejected`, which names the option, if no file can be made there.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=directory).close()
    except OSError as error:
        reason = f"{directory} is no directory for files: {error.strerror}"
        raise SettingsRejected(option, reason) from error


def check_file(option: str, path: Path) -> None:
    """Raise `SettingsRejected` if no file of this path can be written."""
    if path.is_dir():
        raise SettingsRejected(option, f"{path} is a directory")
    _check_parent(option, path.parent)


def check_directory(option: str, path: Path) -> None:
    """Raise `SettingsRejected` if no directory of this path can be made, with its parents."""
    _check_parent(option, next(parent for parent in path.absolute().parents if parent.exists()))


def _check_parent(option: str, parent: Path) -> None:
    if not parent.is_dir():
        raise SettingsRejected(option, f"there is no directory {parent}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise SettingsRejected(option, f"{parent} cannot be written to")
