"""The schemas in which a process writes: those of its own release, or pinned to an earlier one.

Pinned until all processes run the new release, so that readers of the earlier one read on.
"""

from collections.abc import Callable, Mapping
from functools import partial

from seamlessflow.schemas.avro.earlier import NotInRelease, earlier_encoders
from seamlessflow.schemas.avro.encoding import Encode
from seamlessflow.schemas.codec import MARKER, encode
from seamlessflow.schemas.records import RECORDS, Record
from seamlessflow.schemas.registry import Schema, SchemaVersions, history, raw_schemas
from seamlessflow.schemas.releases import SchemaRelease, release_named, this_release

EncodeRecord = Callable[[Record], bytes]


def encoder_of(version: str) -> EncodeRecord:
    """Return the function that encodes records as a release does; it may raise `NotInRelease`.

    It is `encode` itself for a release with the schemas of this one. Raises `UnknownRelease`.
    """
    return encoder_as(release_named(version), this_release(), raw_schemas(), history())


def encoder_as(
    release: SchemaRelease, this: SchemaRelease, raw: Mapping[str, Schema], versions: SchemaVersions
) -> EncodeRecord:
    """Return `encoder_of(release.version)` of a release that `this` knows.

    `raw`: the schemas of `this`. `versions`: those of both releases, a form of `history`.
    """
    changed = this.changed_since(release)
    if not changed:
        return encode
    forms = earlier_encoders(release.version, raw)

    def encoder(name: str) -> EncodeRecord:
        fingerprint = release.fingerprints.get(name)
        if fingerprint is None:
            return partial(_refuse, release.version, name)
        header = MARKER + bytes.fromhex(fingerprint)
        body: Encode = forms.of_self_contained(versions[name][fingerprint])
        return lambda record: header + body(record)

    encoders = {RECORDS[name]: encoder(name) for name in changed}

    def encode_earlier(record: Record) -> bytes:
        return encoders.get(type(record), encode)(record)

    return encode_earlier


def _refuse(version: str, name: str, _: Record) -> bytes:
    raise NotInRelease(version, name)
