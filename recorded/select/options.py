"""Options that choose recorded sessions, from text to a selection. Pure."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pydantic

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.rendering.settings import CHAT_TEMPLATE, RendererSettings, faults
from seamlessflow.recorded.select.selection import Range, SessionSelection

_RETENTION = "thinking_retention"
_CONTROL = "control_tokens"


def selection(
    sessions: Sequence[str] = (),
    groups: Sequence[str] = (),
    tasks: Sequence[str] = (),
    offsets: Sequence[str] = (),
    since: str | None = None,
    until: str | None = None,
    versions: str | None = None,
) -> SessionSelection:
    """Return the selection that options describe. Raises `SettingsRejected`."""
    since_ms = _milliseconds("--since", since)
    until_ms = _milliseconds("--until", until)
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        reason = f"{since} is behind --until {until}, so no session was open in between"
        raise SettingsRejected("--since", reason)
    return SessionSelection(
        frozenset(sessions),
        frozenset(groups),
        frozenset(tasks),
        _offsets(offsets),
        since_ms,
        until_ms,
        None if versions is None else _versions(versions),
    )


def weights(options: Iterable[str]) -> dict[str, float]:
    """Return reward weights, written as `correct=1`. Raises `SettingsRejected`."""
    values = {}
    for option in options:
        name, _, weight = option.partition("=")
        try:
            values[name] = float(weight)
        except ValueError:
            raise SettingsRejected("--return", f"{option} is not NAME=WEIGHT") from None
    return values


def renderer_change(
    option: str, renderers: Collection[str]
) -> Callable[[RendererSettings], RendererSettings]:
    """Return the change to renderer settings that an option describes.

    `thinking_retention=all` changes a setting. `enable_thinking=false` changes a template argument.
    `qwen3` or `qwen3,thinking_retention=all` names another renderer, from `renderers`. Raises
    `SettingsRejected`.
    """
    parts = [part.partition("=") for part in option.split(",")]
    names = [name for name, equals, _ in parts if not equals]
    values = {name: _value(value) for name, equals, value in parts if equals}

    def change(recorded: RendererSettings) -> RendererSettings:
        base = RendererSettings(names[0]) if names else recorded
        named = {name: values[name] for name in (_RETENTION, _CONTROL) if name in values}
        more = {name: value for name, value in values.items() if name not in named}
        return replace(base, options={**base.options, **more}, **named)

    try:
        if len(names) > 1 or option.strip() == "":
            raise ValueError("is not NAME, NAME,SETTING=VALUE or SETTING=VALUE")
        if unknown := [name for name in names if name not in renderers]:
            reason = f"unknown renderer {unknown[0]}; known: {', '.join(sorted(renderers))}"
            raise SettingsRejected("--renderer", reason)
        change(RendererSettings(CHAT_TEMPLATE))
    except pydantic.ValidationError as error:
        raise SettingsRejected("--renderer", f"{option}: {faults(error)}") from None
    except ValueError as error:
        raise SettingsRejected("--renderer", f"{option} {error}") from None
    return change


def _value(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _offsets(options: Sequence[str]) -> dict[int, Range]:
    ranges: dict[int, Range] = {}
    for option in options:
        try:
            partition, bounds = option.split(":")
            begin, end = bounds.split("-")
            number = int(partition)
            span = (int(begin or 0), int(end) if end else 2**62)
        except ValueError:
            reason = f"{option} is not PARTITION:FROM-TO, such as 3:1000-2000 or 3:1000-"
            raise SettingsRejected("--offsets", reason) from None
        if span[0] >= span[1]:
            raise SettingsRejected("--offsets", f"{option} has no offset: TO is behind the last")
        if number in ranges:
            raise SettingsRejected("--offsets", f"{option}: partition {number} is named twice")
        ranges[number] = span
    return ranges


def _versions(option: str) -> Range:
    first, dash, last = option.partition("-")
    try:
        low = int(first)
        high = low
        if dash:
            high = int(last) if last else 2**62
    except ValueError:
        reason = f"{option} is not a version, such as 7, 7-9 or 7-"
        raise SettingsRejected("--versions", reason) from None
    if low > high:
        raise SettingsRejected("--versions", f"{option} has no version: the lower one comes first")
    return low, high


def _milliseconds(option: str, value: str | None) -> int | None:
    """Return a time as milliseconds since the epoch; without a zone it is UTC."""
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        reason = f"{value} is no time, such as 2026-01-31T12:00 or 2026-01-31T12:00+01:00"
        raise SettingsRejected(option, reason) from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
