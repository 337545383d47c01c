"""Storages by their URL: any that fsspec reaches, a directory among them.

Used by `seamlessflow.infra.blobs` and `seamlessflow.infra.weights.remote`.
"""

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fsspec

_LOCAL = ("file", "local")


def storage_at(url: str, **options: Any) -> tuple[Any, str]:
    """Return a URL's file system, with fsspec's options, and its root's path there.

    Raises `ValueError` for an unknown storage and `ImportError` for one whose package is
    missing.
    """
    if (path := local_path(url)) is not None:
        return fsspec.filesystem("file", **options), str(path.absolute())
    files, root = fsspec.url_to_fs(url, **options)
    return files, root


def local_path(url: str) -> Path | None:
    """Return the directory that a URL names on this machine, or None for other storages.

    fsspec reads URLs differently. It takes escapes (%20) literally, and `::` for a border between
    two URLs. It takes a path that is not absolute for one below the current directory.
    """
    if fsspec.utils.get_protocol(url) not in _LOCAL:
        return None
    _, is_url, path = url.partition("://")
    return Path(unquote(path, errors="surrogateescape")) if is_url else Path(url)


def unusable(url: str) -> str:
    """Return why a URL's storage cannot be asked, without asking it; empty if it can be."""
    try:
        fsspec.get_filesystem_class(fsspec.utils.get_protocol(url))
    except (ValueError, ImportError) as error:
        return str(error)
    path = local_path(url)
    if path is not None and not path.is_absolute():
        return f"{url!r} is no whole path, as file:///mnt/weights is"
    return ""
