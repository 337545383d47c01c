"""Encoding of the records that a process writes, pinned to an earlier release if it is set so."""

import logging
from functools import cache

from seamlessflow.infra.errors import WrittenReleaseLacks
from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas.avro.earlier import NotInRelease
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.releases import this_release
from seamlessflow.schemas.written import EncodeRecord, encoder_of

_log = logging.getLogger(__name__)


def encoder(settings: KafkaSettings) -> EncodeRecord:
    """Return the function that encodes records; pinned, it may raise `WrittenReleaseLacks`."""
    return encode if settings.write_release is None else _pinned(settings.write_release)


@cache  # a process has several producers and logs the pin once
def _pinned(release: str) -> EncodeRecord:
    encode_then = encoder_of(release)
    _log.info("writes records of release %s, reads those of %s", release, this_release().version)
    return refusing(release, encode_then)


def refusing(release: str, encode_then: EncodeRecord) -> EncodeRecord:
    """Return the function with `WrittenReleaseLacks` for what the release has no place for."""

    def encode_pinned(record: Record) -> bytes:
        try:
            return encode_then(record)
        except NotInRelease as error:
            raise WrittenReleaseLacks(release, error.record, error.field) from error

    return encode_pinned
