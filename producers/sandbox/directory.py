"""Files in a sandbox's directory, which its command may have turned into anything.

A name is followed part by part, and never through a symbolic link. A command may have left links to
files outside, which this process could read or write.
"""

import errno
import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_ZIP_MODE = 16
"""Lowest bit of a file's mode in the attributes that a zip keeps."""
_IN_THE_WAY = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)


def write_file(root: Path, name: str, content: bytes, executable: bool = False) -> None:
    """Write a file in the directory. Raises `ValueError` for a name outside, or `OSError`."""
    with _parent(root, name, make=True) as (parent, last):
        mode = 0o755 if executable else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_LINK
        with os.fdopen(os.open(last, flags, mode, dir_fd=parent), "wb") as file:
            file.write(content)


def read_file(root: Path, name: str, most: int) -> bytes:
    """Return a regular file in the directory.

    Raises `ValueError` for a name outside the directory, for anything but a regular file, and for
    more than `most` bytes. Also raises `OSError`.
    """
    with (
        _parent(root, name, make=False) as (parent, last),
        os.fdopen(os.open(last, os.O_RDONLY | _NO_LINK, dir_fd=parent), "rb") as file,
    ):
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"{name} is no regular file")
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{name} has more than {most:,} bytes")
    return content


def copy_tree(source: Path, root: Path) -> None:
    """Copy a directory, or unpack an archive, into a directory that no command has changed yet.

    Links stay links, except in a zip, where they become files. An archive is refused if a name in
    it leads outside: a zip with `ValueError`, a tar archive with `tarfile.FilterError`.
    """
    if source.is_dir():
        shutil.copytree(source, root, symlinks=True, dirs_exist_ok=True)
    elif source.suffix == ".zip":
        _unzip(source, root)
    else:
        shutil.unpack_archive(source, root, filter="data")


def _unzip(source: Path, root: Path) -> None:
    # `shutil.unpack_archive` would leave out each name with two dots, and each file's mode.
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                executable = bool(member.external_attr >> _ZIP_MODE & stat.S_IXUSR)
                write_file(root, member.filename, archive.read(member), executable)


def lay_files(source: Path, root: Path) -> bool:
    """Write each file below `source` under its name in the directory. Raises `OSError`.

    Return False if a link or a directory is in the way.
    """
    for file in sorted(source.rglob("*")):
        if file.is_file():
            content = file.read_bytes()
            try:
                name = str(file.relative_to(source))
                write_file(root, name, content, os.access(file, os.X_OK))
            except OSError as error:
                if error.errno in _IN_THE_WAY:
                    return False
                raise
    return True


@contextmanager
def _parent(root: Path, name: str, make: bool) -> Iterator[tuple[int, str]]:
    """Yield a descriptor for the folder that a name is in, and the name's last part."""
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts:
        raise ValueError(f"{name!r} is no name inside the directory")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.parts[:-1]:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder, path.parts[-1]
    finally:
        os.close(folder)
