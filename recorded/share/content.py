"""A shared group's content: a task, sessions as text, and provenance, as canonical JSON. Pure.

Canonical JSON has sorted keys, no spaces, UTF-8 and no NaN, so equal contents are equal bytes. A
content is named by its hash, so a repeated one is recognized.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

VERSION = 1
MOST_BYTES = 1_048_576
"""Largest content."""
_MOST_ANSWERS = 256
"""Most answers in a session: each is rendered behind the whole conversation before it."""
_DIGITS = 32
_SHOWN = 200
SharedMessage = Mapping[str, Any]


class ContentMalformed(ValueError):
    """Bytes that are no shared group's content."""


@dataclass(frozen=True, slots=True)
class SharedSession:
    """A session as text, in OpenAI's chat form."""

    messages: Sequence[SharedMessage]
    reward: float
    """Its return where it was sampled; a run that takes it rewards it anew."""
    tools: Sequence[SharedMessage] = ()

    def row(self) -> dict[str, Any]:
        """Return the messages, and the tools if there are any."""
        row: dict[str, Any] = {"messages": list(self.messages)}
        return {**row, "tools": list(self.tools)} if self.tools else row

    @property
    def text(self) -> str:
        """Return the answers, with a line for each call, and an empty line between answers."""
        return "\n\n".join(
            _said(message) for message in self.messages if message.get("role") == "assistant"
        )


@dataclass(frozen=True, slots=True)
class SharedContent:
    """Content that a signature covers."""

    task: Mapping[str, Any]
    """The task's object, with its `id`."""
    sessions: Sequence[SharedSession]
    provenance: Mapping[str, str]

    @property
    def task_id(self) -> str:
        """Return the task's id as text."""
        return str(self.task["id"])

    def encode(self) -> bytes:
        """Return the content's canonical JSON. Raises `ValueError` for values that JSON lacks."""
        sessions = [{**session.row(), "reward": session.reward} for session in self.sessions]
        value = {
            "version": VERSION,
            "task": dict(self.task),
            "sessions": sessions,
            "provenance": dict(self.provenance),
        }
        return canonical(value)


def canonical(value: object) -> bytes:
    """Return a value as canonical JSON. Raises `ValueError` for values that JSON lacks."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def name_of(content: bytes) -> str:
    """Return a content's name, which follows from its bytes."""
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def read_content(content: bytes) -> SharedContent:
    """Return the content that bytes encode. Raises `ContentMalformed`."""
    _check(len(content) <= MOST_BYTES, f"{len(content):,} bytes, above {MOST_BYTES:,}")
    try:
        value = json.loads(content.decode())
        same = canonical(value) == content
    except (ValueError, RecursionError) as error:
        raise ContentMalformed(f"no JSON: {error}"[:_SHOWN]) from None
    if not same:
        raise ContentMalformed("no canonical JSON: sorted keys, no spaces, UTF-8, no NaN")
    _check(isinstance(value, dict), "no JSON object")
    _check(value.get("version") == VERSION, f"version is not {VERSION}")
    task = value.get("task")
    _check(isinstance(task, dict), "task is no object")
    named = isinstance(task.get("id"), str | int) and not isinstance(task.get("id"), bool)
    _check(named, "task has no id")
    sessions = value.get("sessions")
    _check(isinstance(sessions, list) and bool(sessions), "sessions is no list of at least one")
    provenance = value.get("provenance")
    _check(isinstance(provenance, dict), "provenance is no object")
    texts = all(isinstance(text, str) for text in provenance.values())
    _check(texts, "provenance has something else than texts")
    return SharedContent(task, tuple(map(_session, sessions)), provenance)


def _is_number(value: object) -> bool:
    """Return True for a number that is finite as a float."""
    try:
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and isfinite(float(value))
        )
    except OverflowError:
        return False


def _session(value: Any) -> SharedSession:
    _check(isinstance(value, dict), "a session is no object")
    messages = value.get("messages")
    _check(isinstance(messages, list), "a session has no list of messages")
    objects = all(isinstance(message, dict) for message in messages)
    _check(objects, "a message is no object")
    reward = value.get("reward")
    _check(_is_number(reward), "a session has no finite reward")
    tools = value.get("tools", [])
    _check(isinstance(tools, list), "tools is no list")
    answers = sum(message.get("role") == "assistant" for message in messages)
    _check(answers <= _MOST_ANSWERS, f"a session has {answers} answers, above {_MOST_ANSWERS}")
    return SharedSession(tuple(messages), float(reward), tuple(tools))


def _check(right: bool, reason: str) -> None:
    if not right:
        raise ContentMalformed(reason)


def _said(message: SharedMessage) -> str:
    """Return an answer's text, and each of its calls as a line with name and arguments."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [str(part["text"]) for part in parts if isinstance(part, dict) and part.get("text")]
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            texts.append(f"{function.get('name')} {function.get('arguments')}")
    return "\n".join(texts)
