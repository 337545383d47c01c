"""The models that `/v1/models` lists, in the form that OpenAI, Anthropic or Google clients read."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import orjson

from seamlessflow.producers.gateway.errors import ApiError

_GOOGLE_METHODS = ("generateContent", "countTokens")


class Models:
    """A gateway's models, by the names in its settings.

    `created`: seconds since the epoch, by default now.
    """

    def __init__(self, names: Sequence[str], created: int | None = None) -> None:
        self._names = names
        self._created = int(time.time()) if created is None else created

    def listing(self, google: bool = False) -> bytes:
        """Return the body that lists all models; with `google`, in the form for Google clients."""
        if google:
            return orjson.dumps({"models": [_google_model(name) for name in self._names]})
        names = self._names
        body = {
            "object": "list",
            "data": [self._model(name) for name in names],
            "has_more": False,
            "first_id": names[0] if names else None,
            "last_id": names[-1] if names else None,
        }
        return orjson.dumps(body)

    def description(self, name: str, google: bool = False) -> bytes:
        """Return the body that describes one model. Raises `ApiError` (404)."""
        if name not in self._names:
            raise ApiError(404, f"there is no model {name!r}", code="model_not_found")
        return orjson.dumps(_google_model(name) if google else self._model(name))

    def _model(self, name: str) -> dict[str, object]:
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "seamlessflow",
            "type": "model",
            "display_name": name,
            "created_at": datetime.fromtimestamp(self._created, UTC),
            "lifecycle": "active",
        }


def _google_model(name: str) -> dict[str, object]:
    return {
        "name": f"models/{name}",
        "displayName": name,
        "version": "1",
        "supportedGenerationMethods": _GOOGLE_METHODS,
    }
