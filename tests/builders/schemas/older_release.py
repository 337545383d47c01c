"""Reader of an older release, which knows the schemas of its own time only."""

from collections.abc import Callable
from io import BytesIO

from fastavro import schemaless_reader, schemaless_writer

from seamlessflow.schemas.codec import HEADER_BYTES, MARKER, UnknownSchema, decode
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.registry import history, parsed
from seamlessflow.schemas.releases import order, release_named, releases


def decoder_of(version: str) -> Callable[[bytes], Record]:
    """Return the function by which a process of that release decodes records.

    Fields that it does not know are lost, and have their defaults in the record that is returned.
    """
    own, known = release_named(version), history()
    earlier = [release for release in releases() if order(release.version) <= order(version)]
    names = {one: name for release in earlier for name, one in release.fingerprints.items()}

    def decode_then(data: bytes) -> Record:
        fingerprint = data[len(MARKER) : HEADER_BYTES].hex()
        name = names.get(fingerprint)
        if name is None:
            raise UnknownSchema(fingerprint)
        now = own.fingerprints[name]
        body, seen = BytesIO(data[HEADER_BYTES:]), BytesIO()
        reader = parsed(known[name][now])
        schemaless_writer(
            seen, reader, schemaless_reader(body, parsed(known[name][fingerprint]), reader)
        )
        return decode(MARKER + bytes.fromhex(now) + seen.getvalue())

    return decode_then
