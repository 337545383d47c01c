"""Checks for a Hugging Face model directory: its files, tokenizer and renderer.

Imports neither torch nor transformers.
"""

import json
from pathlib import Path

from seamlessflow.infra.rendering.settings import RendererError, RendererSettings

_FILES = ("config.json", "tokenizer.json")
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_POINTER = b"version https://git-lfs"
_SIZE_BYTES = 8
"""First bytes in a safetensors file, which say how long the header behind them is."""
_MOST_HEADER_BYTES = 100_000_000


def incomplete(directory: Path, with_weights: bool = True) -> str:
    """Return what a model directory lacks, empty if it is complete.

    `with_weights`: it must also have weights; otherwise only what prompts need.
    """
    if not directory.is_dir():
        return f"there is no directory {directory}"
    lacking = [name for name in _FILES if not (directory / name).is_file()]
    try:
        files = _weights(directory) if with_weights else []
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return f"{directory / _INDEX} cannot be read: {error}"
    lacking += [name for name in files if not (directory / name).is_file()]
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        return f"{directory} lacks {', '.join(lacking[:3])}{more}"
    pointers = [name for name in (*_FILES, *files) if _is_pointer(directory / name)]
    if pointers:
        return f"{directory / pointers[0]} is a pointer of Git LFS, not the file: run git lfs pull"
    damages = (_damage(directory / name) for name in files)
    return next(filter(None, damages), "")


def foreign_tokenizer(directory: Path) -> str:
    """Return why a complete directory's tokenizer is not its model's; empty if it may be.

    Its ids must be rows in the model's embeddings. That holds for its vocabulary, and for the added
    tokens that the chat template writes. A tokenizer often has other added tokens without a use.
    """
    try:
        config = json.loads((directory / "config.json").read_bytes())
        rows = {**config, **config.get("text_config", {})}.get("vocab_size")
        tokenizer = json.loads((directory / "tokenizer.json").read_bytes())
        vocabulary = tokenizer["model"]["vocab"]
        template = _template(directory)
        ids = dict.fromkeys(vocabulary.values() if isinstance(vocabulary, dict) else ())
        ids |= {} if isinstance(vocabulary, dict) else dict.fromkeys(range(len(vocabulary)))
        added = [
            token for token in tokenizer.get("added_tokens", ()) if token["content"] in template
        ]
        largest = max((*ids, *(int(token["id"]) for token in added)), default=0)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return ""  # of another form: the libraries that load it decide
    if not isinstance(rows, int) or largest < rows:
        return ""
    text = (
        f"{directory / 'tokenizer.json'} has tokens up to {largest}, and the model of config.json"
    )
    return f"{text} embeds {rows} (vocab_size): it is not the tokenizer of this model"


def _template(directory: Path) -> str:
    """Return the chat template's text, in whichever file it is; empty without one."""
    files = (directory / "chat_template.jinja", directory / "tokenizer_config.json")
    return "\n".join(file.read_text(encoding="utf-8") for file in files if file.is_file())


def unrenderable(directory: Path, settings: RendererSettings) -> str:
    """Return why a renderer does not fit the model's tokenizer, empty if it does."""
    # They take a second to import.
    from seamlessflow.infra.rendering.model_template.discovery import named_for
    from seamlessflow.infra.rendering.renderer import Renderer

    try:
        Renderer.load(directory, named_for(directory, settings))
    except RendererError as error:
        return str(error)
    return ""


def _weights(directory: Path) -> list[str]:
    """Return the weight files' names: one, or those that the index lists."""
    index = directory / _INDEX
    if not index.is_file():
        return [_WEIGHTS]
    listed = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    return sorted(set(listed.values()))


def _is_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER


def _damage(file: Path) -> str:
    """Return what is wrong with a safetensors file by header and length, empty if nothing is."""
    size = file.stat().st_size
    try:
        if size < _expected_size(file):
            return f"{file} is cut short: it has {size} bytes"
    except (ValueError, TypeError, LookupError, AttributeError):
        return f"{file} is no safetensors file"
    return ""


def _expected_size(file: Path) -> int:
    """Return the file's least size, by as much header as is there. Raises for another format."""
    with file.open("rb") as opened:
        size = opened.read(_SIZE_BYTES)
        length = int.from_bytes(size, "little")
        header = opened.read(min(length, _MOST_HEADER_BYTES + 1))
    if len(header) > _MOST_HEADER_BYTES or header[:1] not in (b"{", b""):
        raise ValueError("the header is no JSON object")
    begin = _SIZE_BYTES + length
    if len(size) < _SIZE_BYTES or len(header) < length:
        return begin + 1
    tensors = {**json.loads(header)}
    tensors.pop("__metadata__", None)
    return begin + max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
