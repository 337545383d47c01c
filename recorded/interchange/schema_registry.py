"""Client of a schema registry with the REST interface of Confluent's."""

import json
from types import TracebackType
from typing import Self

import httpx

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.schemas.registry import Schema

_TIMEOUT_S = 30.0
_HEADERS = {
    "Content-Type": "application/vnd.schemaregistry.v1+json",
    "Accept": "application/vnd.schemaregistry.v1+json",
}


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
    """A registry at a URL, which may have user and password in it."""

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
        """Return the id of a schema, registered as the subject's newest if it is not there yet.

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
