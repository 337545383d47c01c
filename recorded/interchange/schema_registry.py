"""Confluent's schema registry: its REST interface, and the wire format of records that name it.

In the wire format, a zero byte and a four-byte schema id stand before the Avro body. Records keep
their body: both framings have the same Avro behind their headers.
"""

import json
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpx

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.schemas.codec import HEADER_BYTES, MARKER
from seamlessflow.schemas.records import Record
from seamlessflow.schemas.registry import NAMESPACE, Schema

_TIMEOUT_S = 30.0
_HEADERS = {
    "Content-Type": "application/vnd.schemaregistry.v1+json",
    "Accept": "application/vnd.schemaregistry.v1+json",
}
_MAGIC = b"\0"
_ID_BYTES = 4


class RegistryFailed(SeamlessFlowError):
    """The registry did not answer, or refused a schema; `status` is 0 without an answer."""

    def __init__(self, subject: str, status: int, reason: str) -> None:
        self.subject = subject
        self.status = status
        self.reason = reason
        self.lasting = 400 <= status < 500
        answer = f"status {status}" if status else "no answer"
        super().__init__(f"schema registry, subject {subject}: {answer}: {reason}")


class SchemaRegistry:
    """A registry at a URL, which may contain user and password."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=_TIMEOUT_S, headers=_HEADERS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def register(self, subject: str, schema: Schema) -> int:
        """Return a schema's id; register it as the subject's newest if it is not there yet.

        Raises `RegistryFailed`.
        """
        try:
            answer = self._client.post(
                f"/subjects/{subject}/versions", json={"schema": json.dumps(schema)}
            )
        except httpx.HTTPError as error:
            raise RegistryFailed(subject, 0, str(error) or repr(error)) from error
        try:
            content = answer.json()
            if answer.is_success:
                return int(content["id"])
            raise RegistryFailed(subject, answer.status_code, str(content["message"]))
        except (ValueError, KeyError, TypeError) as error:
            text = answer.text[:200]
            raise RegistryFailed(subject, answer.status_code, text) from error


@dataclass(frozen=True, slots=True)
class RawRecord(Record):
    """A record as its bytes, which a copy does not decode."""

    value: bytes

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the schema that it was written in; None if it has none of our framings."""
        if len(self.value) < HEADER_BYTES or not self.value.startswith(MARKER):
            return None
        return self.value[len(MARKER) : HEADER_BYTES].hex()

    def framed(self, schema_id: int) -> bytes:
        """Return it in the wire format; the registry gave its schema this id."""
        return _MAGIC + schema_id.to_bytes(_ID_BYTES, "big") + self.value[HEADER_BYTES:]


def subject_of(topic: str, record: str) -> str:
    """Return the registry's name for a record type on a topic (`TopicRecordNameStrategy`)."""
    return f"{topic}-{NAMESPACE}.{record}"
