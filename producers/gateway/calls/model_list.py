"""Bodies of `/v1/models`, in one shape for OpenAI's and Anthropic's clients. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime

import orjson


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
