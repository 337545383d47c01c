"""Sizes of the models that vLLM serves in tests."""

import json
from pathlib import Path

HEAD_DIM = 32


CONTEXT = 256


LONG_CONTEXT = 4096


CAPACITY = 32


VERSION = 3


def with_longer_context(config: Path) -> None:
    """Lengthen the context, so that a test can interfere while this fast engine samples."""
    values = json.loads(config.read_bytes())
    config.write_text(json.dumps({**values, "max_position_embeddings": LONG_CONTEXT}))
