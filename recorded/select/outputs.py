"""Checks of the paths that a command writes at its end, before it starts."""

import os
from pathlib import Path

from seamlessflow.infra.errors import SettingsRejected


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
