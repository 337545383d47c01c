"""Tool calls as a chat template spells them: JSON, behind a mark or alone. Pure.

The spelling is read from a call that the template rendered, so that no family is named here.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from seamlessflow.infra.rendering.library import OK
from seamlessflow.infra.rendering.tool_calls import leaves_out_arguments

_DECODER = json.JSONDecoder()


@dataclass(slots=True)
class Attempt:
    """Attempt at a call, as `library.LibraryCall` has it; if malformed, `raw` is all its text."""

    raw: str
    name: object = None
    arguments: object = None
    status: str = OK
    id: str | None = None
    token_span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class CallFormat:
    """Spelling for calls: `before`, a JSON object or a list of them, `after`.

    Without `before`, an answer is a call only if the whole answer is one.
    """

    before: str
    after: str
    arguments: str
    """Name of the member that holds the arguments."""

    @classmethod
    def from_call(cls, spelt: str) -> "CallFormat | None":
        """Return a spelt call's format, or None if it is no JSON with name and arguments."""
        for start, letter in enumerate(spelt):
            if letter in "[{":
                value, end = _decoded(spelt, start)
                for arguments in ("arguments", "parameters"):
                    listed = _listed(value)
                    if listed and all(_has(call, arguments) for call in listed):
                        return cls(spelt[:start].strip(), spelt[end:].strip(), arguments)
        return None

    def read(self, text: str) -> tuple[str, list[Attempt]]:
        """Return the text before the first call, and all attempts. Later text is left out."""
        if self.before:
            content, mark, _ = text.partition(self.before)
            return content, list(self._marked(text)) if mark else []
        value, end = _decoded(text.strip(), 0)
        listed = _listed(value)
        whole = end == len(text.strip()) and all(_has(call, self.arguments) for call in listed)
        calls = [self._attempt(text.strip(), call) for call in listed if whole]
        return ("", calls) if calls else (text, [])

    def _marked(self, text: str) -> Iterator[Attempt]:
        start = text.find(self.before)
        while start >= 0:
            begin = start + len(self.before)
            begin += len(text[begin:]) - len(text[begin:].lstrip())
            value, end = _decoded(text, begin)
            behind = end + len(text[end:]) - len(text[end:].lstrip())
            closed = text.startswith(self.after, behind)
            if value is None or not closed:
                yield self._malformed(text, start)
                end = text.find(self.after, begin) if self.after else len(text)
                behind = max(end, begin)
            else:
                yield from (self._attempt(text[begin:end], call) for call in _listed(value))
            start = text.find(self.before, behind)

    def _malformed(self, text: str, start: int) -> Attempt:
        end = text.find(self.after, start + len(self.before)) if self.after else len(text)
        if end < 0:
            return Attempt(text[start:], status="unclosed_block")
        return Attempt(text[start : end + len(self.after)], status="invalid_json")

    def _attempt(self, raw: str, value: object) -> Attempt:
        match value:
            case {"name": str(name), self.arguments: arguments, **rest} if name:
                return Attempt(raw, name, arguments, id=_text(rest.get("id")))
            case {"name": str(name), **rest} if name and not leaves_out_arguments(rest):
                return Attempt(raw, name, {}, id=_text(rest.get("id")))
            case {"name": str(name)} if name:
                return Attempt(f"{self.before}{raw}{self.after}", status="missing_arguments")
        return Attempt(f"{self.before}{raw}{self.after}", status="missing_name")


def _decoded(text: str, start: int) -> tuple[object, int]:
    """Return the JSON value at a place, or None, and where it ends."""
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start


def _listed(value: object) -> list[object]:
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, dict) else []


def _has(value: object, arguments: str) -> bool:
    return isinstance(value, dict) and "name" in value and arguments in value


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
