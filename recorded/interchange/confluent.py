"""Wire format of Confluent's schema registry: a zero byte, four bytes of schema id, Avro body.

Pure. Records keep their body: both framings have the same Avro behind their headers.
"""

from dataclasses import dataclass

from seamlessflow.schemas.codec import HEADER_BYTES, MARKER
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.registry import NAMESPACE

_MAGIC = b"\0"
_ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class RawRecord(Record):
    """A record as its bytes, which a copy does not decode."""

    value: bytes

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the schema that it was written in; None if it is in no framing of ours."""
        if len(self.value) < HEADER_BYTES or not self.value.startswith(MARKER):
            return None
        return self.value[len(MARKER) : HEADER_BYTES].hex()

    def framed(self, schema_id: int) -> bytes:
        """Return it in the wire format of the registry that gave its schema this id."""
        return _MAGIC + schema_id.to_bytes(_ID_BYTES, "big") + self.value[HEADER_BYTES:]


def subject_of(topic: str, record: str) -> str:
    """Return the registry's name for a type of record on a topic (`TopicRecordNameStrategy`)."""
    return f"{topic}-{NAMESPACE}.{record}"
