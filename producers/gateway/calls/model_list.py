"""Bodies of `/v1/models`: one for OpenAI's and Anthropic's clients, another for Google's. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime

import orjson

_GOOGLE_METHODS = ("generateContent", "countTokens")


def listing(names: Sequence[str], created: int) -> bytes:
    """Return the body that lists `names`; `created` is in seconds since the epoch."""
    body = {
        "object": "list",
        "data": [_model(name, created) for name in names],
        "has_more": False,
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
    }
    return orjson.dumps(body)


def one_model(name: str, created: int) -> bytes:
    """Return the body that describes one model."""
    return orjson.dumps(_model(name, created))


def google_listing(names: Sequence[str]) -> bytes:
    """Return the body that lists `names` for Google's clients."""
    return orjson.dumps({"models": [_google_model(name) for name in names]})


def google_model(name: str) -> bytes:
    """Return the body that describes one model for Google's clients."""
    return orjson.dumps(_google_model(name))


def _google_model(name: str) -> dict[str, object]:
    return {
        "name": f"models/{name}",
        "displayName": name,
        "version": "1",
        "supportedGenerationMethods": _GOOGLE_METHODS,
    }


def _model(name: str, created: int) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "seamlessflow",
        "type": "model",
        "display_name": name,
        "created_at": datetime.fromtimestamp(created, UTC),
        "lifecycle": "active",
    }
