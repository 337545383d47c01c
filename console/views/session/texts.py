"""A session's texts: what its tokens spell, and its turns' messages. Pure.

Texts come from agents and models. So each character that moves a cursor or turns a line is replaced
by a visible sign.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from seamlessflow.consumers.trajectories.sessions.session import Turn
from seamlessflow.infra.printable import printable
from seamlessflow.recorded.show.session_view import Spell
from seamlessflow.schemas.arrays import Bools, Int32s

LONGEST_MESSAGE = 20_000
"""Characters that a page shows from a message; its record has the rest."""
_BROKEN = "\ufffd"


@dataclass(frozen=True, slots=True)
class TokenTexts:
    """Texts for a range of tokens: each distinct id once, and characters made by several tokens."""

    ids: tuple[int, ...]
    """Distinct ids in the range."""
    texts: tuple[str, ...]
    """Text of each id; a placeholder where its bytes are no whole character."""
    joined: tuple[tuple[int, int, str], ...]
    """First token in the range, token count and text, where tokens only spell text together."""


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message as a page shows it."""

    role: str
    text: str
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Each tool call's name and arguments."""
    length: int = 0
    """Characters in its text; more than `text` has if it was cut."""


def token_texts(ids_N: Int32s, breaks_N: Int32s, spell: Spell | None) -> TokenTexts:
    """Return the tokens' texts; without `spell` each is its id.

    `breaks_N`: a number for each token. Where it changes, a text ends, for example between two
    nodes.
    """
    distinct, inverse_N = np.unique(ids_N, return_inverse=True)
    ids = tuple(distinct.tolist())
    if spell is None:
        return TokenTexts(ids, tuple(f"{number} " for number in ids), ())
    texts = tuple(_shown(spell([number])) for number in ids)
    broken = np.array([_BROKEN in text for text in texts], np.bool_)
    broken_N = broken[inverse_N] if len(ids) else np.zeros(0, np.bool_)
    return TokenTexts(ids, texts, tuple(_joined(ids_N, broken_N, breaks_N, spell)))


def message_rows(turn: Turn) -> tuple[MessageRow, ...]:
    """Return the messages that a turn's prompt adds, and its answer if there is one."""
    answer = (turn.message,) if turn.message else ()
    return tuple(map(message_row, (*turn.started.new_messages, *answer)))


def message_row(message: bytes) -> MessageRow:
    """Return a message from its canonical JSON; text that is no JSON object is shown as it is."""
    try:
        content = json.loads(message)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        return _cut("", message.decode(errors="replace"))
    calls = tuple(map(_call, content.get("tool_calls") or ()))
    text = _text(content.get("content"))
    reasoning = _shown(str(content.get("reasoning_content") or ""))[:LONGEST_MESSAGE]
    return _cut(_shown(str(content.get("role", ""))), text, reasoning, calls)


def _joined(
    ids_N: Int32s, broken_N: Bools, breaks_N: Int32s, spell: Spell
) -> Iterable[tuple[int, int, str]]:
    """Yield each run of tokens that hold parts of characters."""
    places = np.flatnonzero(broken_N)
    if not len(places):
        return
    apart = (np.diff(places) > 1) | (np.diff(breaks_N[places]) != 0)
    for run in np.split(places, np.flatnonzero(apart) + 1):
        if len(run) > 1:
            yield int(run[0]), len(run), _shown(spell(ids_N[run].tolist()))


def _cut(
    role: str, text: str, reasoning: str = "", calls: tuple[tuple[str, str], ...] = ()
) -> MessageRow:
    return MessageRow(role, _shown(text[:LONGEST_MESSAGE]), reasoning, calls, len(text))


def _call(call: Any) -> tuple[str, str]:
    function = call.get("function", {}) if isinstance(call, dict) else {}
    arguments = _text(function.get("arguments"))[:LONGEST_MESSAGE]
    return _shown(str(function.get("name", ""))), _shown(arguments)


def _text(content: Any) -> str:
    """Return the text of a message's content; a part that is no text becomes its type's name."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(map(_part, content))
    return "" if content is None else json.dumps(content, sort_keys=True)


def _part(part: Any) -> str:
    if not isinstance(part, dict):
        return str(part)
    return part["text"] if isinstance(part.get("text"), str) else f"[{part.get('type', 'part')}]"


def _shown(text: str) -> str:
    """Return a text that JSON can carry: without control codes and lone surrogates."""
    return printable(text).encode(errors="replace").decode()
