"""Places of tasks: files, patterns and directories, local or behind any fsspec storage's URL.

Remote files are copied to this machine first. So a run reads the same bytes throughout.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from seamlessflow.infra.json_lines import line_content
from seamlessflow.infra.network.storages import local_path, storage_at
from seamlessflow.scheduler.tasks.prepared.source import SourceRejected

_STATE = "state.json"
_SPLITS = "dataset_dict.json"
_PEEKED = 1 << 16


class SourceKind(Enum):
    """A file's form."""

    LINES = "lines"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


class Compression(Enum):
    """A file's compression."""

    NONE = ""
    GZIP = ".gz"
    ZSTD = ".zst"


_KINDS = {
    ".json": SourceKind.JSON,
    ".csv": SourceKind.CSV,
    ".tsv": SourceKind.CSV,
    ".parquet": SourceKind.PARQUET,
    ".arrow": SourceKind.ARROW,
}


_LINES = (".jsonl", ".ndjson")


class SourceFile(NamedTuple):
    """A source's file, on this machine."""

    path: Path
    shown: str
    """Its place as the user wrote it, without keys."""
    kind: SourceKind
    compression: Compression
    delimiter: str = ","

    def place(self, number: int) -> str:
        """Return the words for the line or row with this number."""
        return f"{'line' if self.kind in (SourceKind.LINES, SourceKind.CSV) else 'row'} {number:,}"


def is_plain(text: str) -> bool:
    """Return whether a text names a JSON lines file that is read where it lies."""
    if "://" in text:
        return False
    path = Path(text)
    try:
        if path.is_dir() or (is_pattern(text) and not path.exists()):
            return False
    except (OSError, ValueError):
        return True  # no disk has it; that fault is reported elsewhere
    kind, compression, _ = _form(str(path))
    if compression is not Compression.NONE:
        return False
    return kind is SourceKind.LINES or (kind is SourceKind.JSON and not _is_list(path))


def is_pattern(text: str) -> bool:
    """Return whether a text may name several files, by *."""
    return "*" in text


def shown_place(text: str) -> str:
    """Return a place without the parts of a URL that may hold a key: its user and its query."""
    if "://" not in text:
        return text
    parts = urlsplit(text)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def located(text: str, scratch: Path) -> list[SourceFile]:
    """Return a source's files; remote ones are copied to `scratch`.

    Raises `SourceRejected`.
    """
    shown = shown_place(text)
    try:
        files, root = storage_at(text)
        listed = _listed(files, root, text)
        here = local_path(text) is not None
        return [
            _file(files, path, scratch / str(number), _shown_file(text, path, len(listed)), here)
            for number, path in enumerate(listed)
        ]
    except SourceRejected:
        raise
    except Exception as error:  # storages raise their own libraries' errors
        raise SourceRejected(shown, "", _reason(error).replace(text, shown)) from error


def content_hash(files: Sequence[SourceFile]) -> bytes:
    """Return a hash over the content of all files, in this order."""
    whole = hashlib.blake2b()
    for file in files:
        try:
            with file.path.open("rb") as content:
                digest = hashlib.file_digest(content, "blake2b").digest()
        except OSError as error:
            raise SourceRejected(file.shown, "", error.strerror or str(error)) from error
        whole.update(f"{file.kind.value}{file.compression.value}{file.delimiter}".encode())
        whole.update(digest)
    return whole.digest()


def _listed(files: Any, root: str, text: str) -> list[str]:
    """Return a source's paths in its file system. Raises `SourceRejected` or `OSError`."""
    shown = shown_place(text)
    if is_pattern(text) and not files.exists(root):
        paths = sorted(path for path in files.glob(root) if not files.isdir(path))
        if not paths:
            raise SourceRejected(shown, "", "no file has such a name")
        return paths
    if "://" in text and _is_named_as_file(urlsplit(text).path):
        return [root]  # not asked: to list a directory, HTTP would read the whole file
    return list(_of_directory(files, root, shown)) if files.isdir(root) else [root]


def _of_directory(files: Any, root: str, shown: str) -> Iterator[str]:
    """Yield the files in a directory that the library `datasets` saved."""
    if files.exists(f"{root}/{_SPLITS}"):
        splits = json.loads(files.cat_file(f"{root}/{_SPLITS}")).get("splits", [])
        reason = f"it has several splits: name {' or '.join(f'{shown}/{name}' for name in splits)}"
        raise SourceRejected(shown, "", reason)
    if not files.exists(f"{root}/{_STATE}"):
        reason = f"it has no {_STATE}, which save_to_disk writes: name files, as {shown}/*.parquet"
        raise SourceRejected(shown, "", reason)
    state = json.loads(files.cat_file(f"{root}/{_STATE}"))
    if state.get("_indices_data_files"):
        reason = "its rows are chosen by indices: save it again with a newer version of datasets"
        raise SourceRejected(shown, "", reason)
    for entry in state.get("_data_files") or []:
        yield f"{root}/{PurePosixPath(entry['filename']).name}"


def _file(files: Any, path: str, copy: Path, shown: str, here: bool) -> SourceFile:
    """Return a file, copied if it is remote."""
    if not here:
        copy.parent.mkdir(parents=True, exist_ok=True)
        files.get_file(path, str(copy))
    place = Path(path) if here else copy
    if place.is_dir():
        raise SourceRejected(shown, "", "it is a directory")
    kind, compression, delimiter = _form(path if here else urlsplit(path).path)
    return SourceFile(place, shown, kind, compression, delimiter)


def _shown_file(text: str, path: str, count: int) -> str:
    if count == 1 and not is_pattern(text) and not path.endswith(".arrow"):
        return shown_place(text)
    if "://" not in text or "://" in path:
        return shown_place(path)
    return f"{urlsplit(text).scheme}://{path.lstrip('/')}"


def _is_named_as_file(path: str) -> bool:
    kind, compression, _ = _form(path)
    suffix = PurePosixPath(path).suffix
    return kind is not SourceKind.LINES or compression is not Compression.NONE or suffix in _LINES


def _form(name: str) -> tuple[SourceKind, Compression, str]:
    """Return kind, compression and delimiter by a file's name."""
    path = PurePosixPath(name.lower())
    compression = next((c for c in Compression if c.value == path.suffix), Compression.NONE)
    end = PurePosixPath(path.name.removesuffix(compression.value)).suffix
    return _KINDS.get(end, SourceKind.LINES), compression, "\t" if end == ".tsv" else ","


def _is_list(path: Path) -> bool:
    """Return whether a file's content begins with a list; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return line_content(file.read(_PEEKED)).startswith(b"[")
    except OSError:
        return False


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "No such file or directory"
    return str(getattr(error, "strerror", None) or error) or type(error).__name__
