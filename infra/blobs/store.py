"""Object storage for what is too large for a record: blobs, each under the hash of its content.

Any storage that fsspec reaches by a URL: a directory, or with its own package S3, GCS or Azure. A
blob never changes, so writers of equal content do not disturb each other, and a repeated write is
free. Blobs must be kept for as long as the topics whose records refer to them.
"""

import hashlib
import re
from pathlib import Path
from typing import Any, Protocol

from seamlessflow.infra.disk.full import DiskFull
from seamlessflow.infra.disk.whole_file import whole_file
from seamlessflow.infra.errors import BlobUnavailable, SettingsRejected
from seamlessflow.infra.network.storages import storage_at

_HEX_SHA256 = re.compile("[0-9a-f]{64}")


class BlobStore(Protocol):
    """Blobs by the hash of their content."""

    def put(self, content: bytes) -> str:
        """Keep the content and return its hex SHA-256. Raises `BlobUnavailable`."""
        ...

    def get(self, sha256: str) -> bytes:
        """Return the content, whose hash is compared. Raises `BlobUnavailable`."""
        ...

    def remove(self, sha256: str) -> bool:
        """Delete a blob; return False if it was not there. Raises `BlobUnavailable`."""
        ...


class FsspecStore:
    """Blobs as files below one URL. Safe to call from any thread."""

    def __init__(self, url: str) -> None:
        """Raises `SettingsRejected` for a URL whose storage is not known or not installed."""
        self.url = url
        try:
            self._files, self._root = storage_at(url)
        except (ValueError, ImportError) as error:
            raise SettingsRejected("SEAMLESSFLOW_KAFKA__BLOBS", str(error)) from error
        self._local = "file" in _protocols(self._files)

    def put(self, content: bytes) -> str:
        """Keep the content and return its hex SHA-256. Raises `BlobUnavailable`."""
        sha256 = hashlib.sha256(content).hexdigest()
        path = self._path(sha256)
        try:
            if not self._files.exists(path):
                (_write_file if self._local else self._files.pipe_file)(path, content)
        except (OSError, DiskFull) as error:
            raise BlobUnavailable(sha256, self.url, _reason(error), lasting=False) from error
        return sha256

    def get(self, sha256: str) -> bytes:
        """Return the content, whose hash is compared. Raises `BlobUnavailable`."""
        try:
            content: bytes = self._files.cat_file(self._path(sha256))
        except FileNotFoundError as error:
            raise BlobUnavailable(sha256, self.url, "is not there", lasting=True) from error
        except OSError as error:
            raise BlobUnavailable(sha256, self.url, _reason(error), lasting=False) from error
        if hashlib.sha256(content).hexdigest() != sha256:
            raise BlobUnavailable(sha256, self.url, "has other content", lasting=True)
        return content

    def remove(self, sha256: str) -> bool:
        """Delete a blob; return False if it was not there. Raises `BlobUnavailable`."""
        try:
            self._files.rm_file(self._path(sha256))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise BlobUnavailable(sha256, self.url, _reason(error), lasting=False) from error
        return True

    def _path(self, sha256: str) -> str:
        # The name comes from the log: it must not lead out of the storage's root.
        if not _HEX_SHA256.fullmatch(sha256):
            raise BlobUnavailable(sha256[:80], self.url, "is no hex SHA-256", lasting=True)
        return f"{self._root}/{sha256}"


def _protocols(files: Any) -> tuple[str, ...]:
    protocol = files.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _write_file(path: str, content: bytes) -> None:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(target, shared=True) as file:
        file.write(content)


def _reason(error: OSError | DiskFull) -> str:
    return error.reason if isinstance(error, DiskFull) else error.strerror or str(error)
