"""The schemas in which a process writes: those of its own release, or pinned to an earlier one.

Pinned until all processes run the new release, so that readers of the earlier one read on.
"""

from collections.abc import Callable

from seamlessflow.schemas.avro.earlier import NotInRelease, earlier_encoders
from seamlessflow.schemas.avro.encoding import Encode
from seamlessflow.schemas.codec import MARKER, encode
from seamlessflow.schemas.records import RECORDS, Record
from seamlessflow.schemas.registry import history, raw_schemas
from seamlessflow.schemas.releases import SchemaRelease, release_named, this_release

EncodeRecord = Callable[[Record], bytes]


def encoder_of(version: str) -> EncodeRecord:
    """Return the function that encodes records as a release does; it may raise `NotInRelease`.

    It is `encode` itself for a release with the schemas of this one. Raises `UnknownRelease`.
    """
    release = release_named(version)
    changed = this_release().changed_since(release)
    if not changed:
        return encode
    encoders = {RECORDS[name]: _encoder(release, name) for name in changed}

    def encode_earlier(record: Record) -> bytes:
        return encoders.get(type(record), encode)(record)

    return encode_earlier


def _encoder(release: SchemaRelease, name: str) -> EncodeRecord:
    fingerprint = release.fingerprints.get(name)
    if fingerprint is None:

        def refuse(_: Record) -> bytes:
            raise NotInRelease(release.version, name)

        return refuse
    header = MARKER + bytes.fromhex(fingerprint)
    forms = earlier_encoders(release.version, raw_schemas())
    body: Encode = forms.of_self_contained(history()[name][fingerprint])
    return lambda record: header + body(record)
