"""Blobs: content too large for a record, stored under its hash; and the references to it.

Their storage is any that fsspec reaches by a URL: a directory, or S3, GCS or Azure with their
packages. A blob never changes. So writers with equal content do not disturb each other, and a
repeated write is free. Blobs must be kept as long as the topics whose records refer to them.

A record that is too large for its topic is kept as a blob, with a reference on the log. Senders
and readers do not notice. A producer stores the blob before it sends the reference, and readers
deliver the record itself. Its bytes are the same in both places.
"""

import hashlib
import re
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from seamlessflow.infra.disk import DiskFull, whole_file
from seamlessflow.infra.errors import BlobUnavailable, SettingsRejected
from seamlessflow.infra.network.storages import storage_at
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import HEADER_BYTES, decode, encode
from seamlessflow.schemas.records import BlobReference, Record
from seamlessflow.schemas.topics import LETTERED, TRAJECTORIES

_HEX_SHA256 = re.compile("[0-9a-f]{64}")

NO_LIMIT = 2**62
_ENVELOPE_BYTES = 65_536
"""Room for a record's key, headers and frame."""
_SETTING = "no storage (SEAMLESSFLOW_KAFKA__BLOBS is not set)"
_PATIENCE_S = 30.0
_AGAIN_S = 1.0
_MOST_BYTES = {
    name: topic.max_record_bytes - _ENVELOPE_BYTES
    for topic in LETTERED.values()
    for name in (topic.name, topic.dead_letters)
}
_LEAST_BYTES = min(_MOST_BYTES.values())
_HEADER = encode(BlobReference(sha256="", size=0, record=""))[:HEADER_BYTES]


class BlobStore(Protocol):
    """Storage that keeps blobs under their content's hash."""

    def put(self, content: bytes) -> str:
        """Keep the content and return its hex SHA-256. Raises `BlobUnavailable`."""
        ...

    def get(self, sha256: str) -> bytes:
        """Return the content after comparing its hash. Raises `BlobUnavailable`."""
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
        """Return the content after comparing its hash. Raises `BlobUnavailable`."""
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


def blob_store(settings: KafkaSettings) -> BlobStore | None:
    """Return the configured storage, or None. Raises `SettingsRejected`."""
    return None if settings.blobs is None else _store(settings.blobs)


@cache
def _store(url: str) -> FsspecStore:
    return FsspecStore(url)


def largest_trajectory(settings: KafkaSettings) -> int:
    """Return the most bytes that a trajectory may take before its tokens are left out."""
    return TRAJECTORIES.max_record_bytes if settings.blobs is None else NO_LIMIT


def too_large(topic: str, value: bytes) -> bool:
    """Return whether an encoded record is too large for `topic`, whose name may have a prefix."""
    if len(value) <= _LEAST_BYTES:
        return False
    names = [name for name in _MOST_BYTES if topic.endswith(name)]
    return bool(names) and len(value) > _MOST_BYTES[max(names, key=len)]


def referred(store: BlobStore, value: bytes) -> BlobReference:
    """Put an encoded record into the storage and return the reference. Raises `BlobUnavailable`."""
    record = type(decode(value)).__name__
    return BlobReference(sha256=store.put(value), size=len(value), record=record)


def fitting_records(
    settings: KafkaSettings, encode_record: Callable[[Record], bytes]
) -> Callable[[str, bytes | None], bytes | None]:
    """Return a function from topic and value to what is sent: the value, or a reference to it.

    The reference is sent if the value is too large for the topic. The function raises
    `BlobUnavailable`, and what `encode_record` raises.
    """
    store = blob_store(settings)

    def fitting(topic: str, value: bytes | None) -> bytes | None:
        if store is None or value is None or not too_large(topic, value):
            return value
        return encode_record(referred(store, value))

    return fitting


def reference(value: bytes) -> BlobReference | None:
    """Return the reference that `value` encodes, or None. Raises `UndecodableRecord`."""
    if not value.startswith(_HEADER):
        return None
    record = decode(value)
    return record if isinstance(record, BlobReference) else None


def following(
    store: BlobStore | None,
    decode_record: Callable[[bytes], Record],
    patience_s: float = _PATIENCE_S,
) -> Callable[[bytes], Record]:
    """Return a function like `decode_record` that decodes a blob instead of its reference.

    While the storage does not answer, it tries again for `patience_s`. Raises `BlobUnavailable`.
    """

    def decode_referred(value: bytes) -> Record:
        blob = reference(value)
        return decode_record(value if blob is None else _content(store, blob, patience_s))

    return decode_referred


def whole_records(
    settings: KafkaSettings, decode_record: Callable[[bytes], Record]
) -> Callable[[bytes], Record]:
    """Return `following` with the configured storage.

    A class, such as `Raw`, is returned as it is, so references stay references.
    """
    if isinstance(decode_record, type):
        return decode_record
    return following(blob_store(settings), decode_record)


def _content(store: BlobStore | None, blob: BlobReference, patience_s: float) -> bytes:
    if store is None:
        raise BlobUnavailable(blob.sha256, _SETTING, f"holds a {blob.record}", lasting=True)
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return store.get(blob.sha256)
        except BlobUnavailable as error:
            if error.lasting or time.monotonic() > deadline:
                raise
        time.sleep(_AGAIN_S)
