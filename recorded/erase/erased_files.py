"""Erasure from files: JSON lines about sessions, in `trained/` and in exports."""

import gzip
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from seamlessflow.infra.disk import whole_file
from seamlessflow.infra.json_lines import line_content
from seamlessflow.recorded.erase.erased_sessions import ErasedSessions

_LINES = (".jsonl", ".jsonl.gz")
_TABLES = (".parquet", ".avro")
_FIELDS = {"session_id", "session"}
_STEP = {"step", "version", "tokens"}
"""Fields in the first line of a file in `trained/`."""
_LEVEL = 4


@dataclass(slots=True)
class FilesErased:
    """Outcome for the files in some directories."""

    lines: dict[Path, int] = field(default_factory=dict)
    """By file with erased lines, their count."""
    nameless: dict[Path, int] = field(default_factory=dict)
    """By file, the count of lines that name no session, so it is not known whose they are."""
    tables: list[Path] = field(default_factory=list)
    """Parquet and Avro files, which have to be made again."""
    first_version: int | None = None
    """Lowest policy version that a step with erased tokens made."""


def erase_from_files(
    directories: Iterable[Path], sessions: ErasedSessions, dry_run: bool
) -> FilesErased:
    """Rewrite each file that has lines about the sessions, and leave all others as they are.

    A file is replaced as a whole. Raises `DiskFull` and `OSError`.
    """
    outcome = FilesErased()
    for directory in directories:
        for path in sorted(file for file in directory.rglob("*") if file.is_file()):
            if path.name.endswith(_LINES) and not path.name.startswith("."):
                _erase(path, sessions, dry_run, outcome)
            elif path.suffix in _TABLES:
                outcome.tables.append(path)
    return outcome


def _erase(path: Path, sessions: ErasedSessions, dry_run: bool, outcome: FilesErased) -> None:
    erased = tokens = nameless = 0
    header: dict[str, Any] = {}
    with _opened(path) as lines:
        for number, line in enumerate(lines):
            content = _object(line)
            if _about(content, sessions):
                erased += 1
                tokens += len(content.get("ids", ()))
            elif number == 0 and content.keys() >= _STEP:
                header = content
            elif line_content(line) and not _FIELDS & content.keys():
                nameless += 1
    if nameless:
        outcome.nameless[path] = nameless
    if not erased:
        return
    outcome.lines[path] = erased
    first_line = None
    if header:
        first_line = orjson.dumps(header | {"tokens": header["tokens"] - tokens}) + b"\n"
        version = int(header["version"])
        outcome.first_version = min(version, outcome.first_version or version)
    if not dry_run:
        _rewrite(path, sessions, first_line)


def _rewrite(path: Path, sessions: ErasedSessions, first_line: bytes | None) -> None:
    """Replace the file by one without the sessions, which begins with `first_line` if given."""
    with _opened(path) as lines, whole_file(path) as file, ExitStack() as packing:
        target: IO[bytes] | gzip.GzipFile = file
        if path.suffix == ".gz":
            packed = gzip.GzipFile("", "wb", compresslevel=_LEVEL, fileobj=file, mtime=0)
            target = packing.enter_context(packed)
        for number, line in enumerate(lines):
            if number == 0 and first_line is not None:
                target.write(first_line)
            elif not _about(_object(line), sessions):
                target.write(line)


def _opened(path: Path) -> gzip.GzipFile | IO[bytes]:
    return gzip.GzipFile(path) if path.suffix == ".gz" else path.open("rb")


def _object(line: bytes) -> dict[str, Any]:
    """Return the line's JSON object; empty if the line is no object."""
    with suppress(orjson.JSONDecodeError):
        value = orjson.loads(line_content(line))
        if isinstance(value, dict):
            return value
    return {}


def _about(content: dict[str, Any], sessions: ErasedSessions) -> bool:
    named = [content.get(name) for name in _FIELDS]
    return any(isinstance(name, str) and sessions.include(name) for name in named)
