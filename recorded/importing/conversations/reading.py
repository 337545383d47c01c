"""Files of conversations, recognized by their content: which tool wrote one, and what it has.

A file is one JSON value, a list of values, or a value on each line. The first value shows its form.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from seamlessflow.infra.json_lines import json_fault, json_lines
from seamlessflow.producers.gateway.errors import ApiError
from seamlessflow.recorded.importing.conversations import agents, atif, call_logs
from seamlessflow.recorded.importing.conversations.conversation import (
    ForeignConversation,
    NotReadable,
)
from seamlessflow.recorded.importing.foreign_row import ForeignRowRejected, RowRead

Values = Sequence[Mapping[str, Any]]
Read = Callable[[Values], Iterator[ForeignConversation | RowRead]]
CHAT = "chat"
_MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError)


def reader_of(path: Path) -> Read | None:
    """Return the reader for a file with conversations or ATIF; None for one with token rows.

    Raises `ForeignRowRejected` if its first line is no JSON, and the whole file has no JSON
    objects.
    """
    first = _first(path)
    return next((read for known_by, read in _FORMS if known_by(first)), None) if first else None


def read(path: Path, reader: Read) -> Iterator[ForeignConversation | RowRead]:
    """Yield a file's contents in order. Raises `ForeignRowRejected`."""
    values = _values(path)
    number = 1
    try:
        for item in reader(values):
            yield item
            number += 1
    except ApiError as error:
        raise ForeignRowRejected(str(path), number, error.message) from error
    except KeyError as error:
        raise ForeignRowRejected(str(path), number, f"it lacks the member {error}") from error
    except _MALFORMED as error:
        raise ForeignRowRejected(str(path), number, str(error)) from error


def _first(path: Path) -> Mapping[str, Any] | None:
    """Return a file's first value if it is an object, else None."""
    with path.open("rb") as file:
        line = next(iter(json_lines(file)), None)
    if line is None:
        return None
    try:
        value = orjson.loads(line.content)
    except orjson.JSONDecodeError:
        # A value on many lines. Rows of tokens never are.
        value = next(iter(_values(path)), None)
    if isinstance(value, list):
        value = value[0] if value else None
    return value if isinstance(value, dict) else None


def _values(path: Path) -> Values:
    content = path.read_bytes()
    try:
        whole = orjson.loads(content)
    except orjson.JSONDecodeError:
        return [
            _object(path, line.number, line.content) for line in json_lines(content.split(b"\n"))
        ]
    values = whole if isinstance(whole, list) else [whole]
    if not all(isinstance(value, dict) for value in values):
        raise ForeignRowRejected(str(path), 1, "no JSON object")
    return values


def _object(path: Path, number: int, content: bytes) -> Mapping[str, Any]:
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        reason = f"no JSON: {json_fault(content, error)}"
        raise ForeignRowRejected(str(path), number, reason) from None
    if not isinstance(value, dict):
        raise ForeignRowRejected(str(path), number, "no JSON object")
    return value


def _is_chat(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("messages"), list)


def _chat(values: Values) -> Iterator[ForeignConversation]:
    for value in values:
        name = str(value.get("id") or value.get("session_id") or "")
        if not _is_chat(value):
            raise NotReadable("it has no list of messages")
        yield ForeignConversation(
            value["messages"], CHAT, value.get("tools") or (), name, str(value.get("model") or "")
        )


def _atif(values: Values) -> Iterator[ForeignConversation | RowRead]:
    for value in values:
        for document in atif.with_subagents(value):
            if atif.has_tokens(document):
                yield from atif.rows(document)
            else:
                yield atif.conversation(document)


_FORMS: Sequence[tuple[Callable[[Mapping[str, Any]], bool], Read]] = (
    (atif.is_atif, _atif),
    (call_logs.is_open_telemetry, call_logs.open_telemetry),
    (call_logs.is_litellm, call_logs.litellm),
    (_is_chat, _chat),
    (agents.is_codex, agents.codex),
    (agents.is_claude_code, agents.claude_code),
    (call_logs.is_langfuse, call_logs.langfuse),
)
"""For each form, the function that recognizes its first value, and its reader."""
