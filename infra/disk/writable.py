"""Directories that a user names, for files to be written there."""

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
