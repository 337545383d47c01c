"""Records that are too large for their topic: kept as blobs, with a reference on the log.

Transparent to all who send and read: producers put the blob there before they send the reference,
readers deliver the record itself. Its bytes are the same in both places.
"""

import time
from collections.abc import Callable
from functools import cache

from seamlessflow.infra.blobs.store import BlobStore, FsspecStore
from seamlessflow.infra.errors import BlobUnavailable
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import HEADER_BYTES, decode, encode
from seamlessflow.schemas.records import BlobReference, Record
from seamlessflow.schemas.topics import TOPICS, TRAJECTORIES

NO_LIMIT = 2**62
_ENVELOPE_BYTES = 65_536
"""Room for the key, the headers and the frame of a record."""
_SETTING = "no storage (SEAMLESSFLOW_KAFKA__BLOBS is not set)"
_PATIENCE_S = 30.0
_AGAIN_S = 1.0
_MOST_BYTES = {
    name: topic.max_record_bytes - _ENVELOPE_BYTES
    for topic in TOPICS.values()
    for name in (topic.name, topic.dead_letters)
}
_LEAST_BYTES = min(_MOST_BYTES.values())
_HEADER = encode(BlobReference(sha256="", size=0, record=""))[:HEADER_BYTES]


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
    """Return whether an encoded record is too large for `topic`, with or without a prefix."""
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
    """Return a function of topic and value: the value, or a reference to it if it is too large.

    That function raises `BlobUnavailable`, and what `encode_record` raises.
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
    """Return `decode_record` that decodes the blob where a record is a reference.

    It waits `patience_s` for a storage that does not answer, and raises `BlobUnavailable`.
    """

    def decode_referred(value: bytes) -> Record:
        blob = reference(value)
        return decode_record(value if blob is None else _content(store, blob, patience_s))

    return decode_referred


def whole_records(
    settings: KafkaSettings, decode_record: Callable[[bytes], Record]
) -> Callable[[bytes], Record]:
    """Return `following` with the configured storage; a class, such as `Raw`, keeps references."""
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
