"""Files in a Hugging Face directory that say how a model is prompted.

They hold its chat template, its special tokens, and the tokens that end an answer. This module
imports nothing heavy; `settings.py` hashes the files.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TEMPLATE_FILE = "chat_template.jinja"
CONFIG_FILE = "tokenizer_config.json"
GENERATION_FILE = "generation_config.json"

_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


def template_source(directory: Path) -> str | None:
    """Return a directory's chat template source, or None if it has none.

    If the configuration has several templates, `default` counts. Raises `OSError`, and `ValueError`
    for a file that is no JSON.
    """
    file = directory / TEMPLATE_FILE
    if file.is_file():
        return file.read_text(encoding="utf-8")
    source = _read(directory / CONFIG_FILE).get("chat_template")
    if isinstance(source, list):
        source = {template.get("name"): template.get("template") for template in source}.get(
            "default"
        )
    return source if isinstance(source, str) else None


def special_tokens(directory: Path) -> dict[str, str]:
    """Return the spelling of each special token that the tokenizer's configuration names."""
    config = _read(directory / CONFIG_FILE)
    spellings = {}
    for name in _SPECIAL_TOKENS:
        match config.get(name):
            case str(token) | {"content": str(token)}:
                spellings[name] = token
    return spellings


def end_token_ids(directory: Path) -> list[int]:
    """Return the token ids that end an answer, as far as the model names them."""
    named = _read(directory / GENERATION_FILE).get("eos_token_id")
    listed = named if isinstance(named, list) else [named]
    return [token_id for token_id in listed if type(token_id) is int]


def prompting_bytes(directory: Path) -> bytes:
    """Return all that this module reads from a directory; equal content gives equal bytes."""
    read = [template_source(directory), special_tokens(directory), end_token_ids(directory)]
    return json.dumps(read, sort_keys=True).encode()


def _read(file: Path) -> Mapping[str, Any]:
    if not file.is_file():
        return {}
    config = json.loads(file.read_text(encoding="utf-8"))
    return config if isinstance(config, dict) else {}
