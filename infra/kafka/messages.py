"""The Kafka client's messages as records, whatever their bytes are, and records as messages.

If a process is pinned to an earlier release, it encodes records as that release does.
"""

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

from confluent_kafka import Message

from seamlessflow.infra.errors import BlobUnavailable, NewerRelease, WrittenReleaseLacks
from seamlessflow.infra.kafka.client import LogPartition, Received
from seamlessflow.infra.kafka.unreadable import Raw, Unreadable
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.codec import UndecodableRecord, UnknownSchema, encode
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.releases import this_release
from seamlessflow.schemas.written import EncodeRecord, NotInRelease, encoder_of

WantedKeys = Callable[[bytes], bool]
"""Returns True for a key whose record is wanted; a record without a key always is."""

_log = logging.getLogger(__name__)


def decoded(
    message: Message,
    place: LogPartition,
    decode: Callable[[bytes], Record],
    wanted: WantedKeys | None = None,
) -> Received | None:
    """Return the record in a message from `place`, or an `Unreadable` if it cannot be decoded.

    Returns None for a tombstone, and for an unwanted record, which is not decoded.

    A key or a header's name that is not UTF-8 is garbage too: no release writes one. Header values
    are not decoded here. A `Raw` record holds its own key.
    """
    value = message.value()
    (topic, partition) = place
    offset = message.offset() or 0
    if value is None or not (wanted is None or _wanted(message.key(), wanted)):
        return None
    key: str | None = None
    headers: Any = ()
    try:
        headers = message.headers() or ()  # first: an unreadable record keeps them
        record = decode(value)
        if isinstance(record, Raw):
            record = Raw(value, message.key())
        else:
            key = _text(message.key())
    except UnknownSchema as error:
        newer = NewerRelease(
            topic, partition, offset, f"the unknown schema fingerprint {error.fingerprint}"
        )
        record = Unreadable(str(newer), newer)
    except BlobUnavailable as error:
        record = Unreadable(str(error), error)
    except (UndecodableRecord, UnicodeDecodeError) as error:
        record = Unreadable(str(error))
    except SystemError:  # the client raises it for a header's name
        record = Unreadable("the name of a header is not UTF-8")
    at_ms = message.timestamp()[1]
    size = len(value)
    return Received(topic, partition, offset, at_ms, key, headers, record, size)


def encoder(settings: KafkaSettings) -> EncodeRecord:
    """Return the function that encodes records; if pinned, it may raise `WrittenReleaseLacks`."""
    return encode if settings.write_release is None else _pinned(settings.write_release)


def _text(key: str | bytes | None) -> str | None:
    return key.decode() if isinstance(key, bytes) else key


def _wanted(key: str | bytes | None, wanted: WantedKeys) -> bool:
    return not isinstance(key, bytes) or wanted(key)


@cache  # a process has several producers and logs the pin once
def _pinned(release: str) -> EncodeRecord:
    encode_then = encoder_of(release)
    _log.info("writes records of release %s, reads those of %s", release, this_release().version)
    return refusing(release, encode_then)


def refusing(release: str, encode_then: EncodeRecord) -> EncodeRecord:
    """Return the function, raising `WrittenReleaseLacks` for what the release does not have."""

    def encode_pinned(record: Record) -> bytes:
        try:
            return encode_then(record)
        except NotInRelease as error:
            raise WrittenReleaseLacks(release, error.record, error.field) from error

    return encode_pinned
