"""A turn's assistant message, parsed while its tokens come, and its JSON. Pure.

One text is parsed: the prompt's prefill (a forced tool call), earlier dispatches' tokens, and those
sampled now. Deltas hold only what earlier dispatches have not written.

The JSON is for records on `sessions`. It is canonical: sorted keys, absent members left out. Tool
calls get public ids that contain the turn's id.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import orjson

from seamlessflow.infra.rendering.completion import (
    NOTHING,
    MessageDelta,
    MessageStream,
    ParsedMessage,
)
from seamlessflow.infra.rendering.tool_calls import ToolCall
from seamlessflow.producers.rollout.turns.text_ends import OneCall, StopText, joined
from seamlessflow.schemas.identity import tool_call_id
from seamlessflow.schemas.records import GenerateTurn
from seamlessflow.schemas.tokens import TOKEN_BYTES


class MessageParser(Protocol):
    """The part of a policy's `Renderer` that the rollout process needs: a completion parser.

    Not for several threads at once.
    """

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a completion."""

    @property
    def thinking_marks(self) -> tuple[int, int] | None:
        """Tokens that begin and end thinking, or None if there is not one for each."""

    def stream(self, tools: Sequence[Mapping[str, object]] | None, prompt: bytes) -> MessageStream:
        """Return a parser for one completion of `prompt`."""

    def raw_stream(self) -> MessageStream:
        """Return a parser for one completion as plain text: the prompt has no chat template."""

    def encode(self, text: str) -> bytes:
        """Return the token ids of `text` as int32 bytes."""


class TurnMessage:
    """The message so far. `stream` parses from the prefill on; tokens in `ends` end a turn.

    The prefill's tokens are fed to the stream, but do not count in the completion.
    """

    def __init__(
        self, request: GenerateTurn, stream: MessageStream, ends: Collection[int] = ()
    ) -> None:
        stops = request.sampling.stop
        one_call = request.sampling.one_tool_call
        self._one_call = OneCall(stream, ends) if one_call else None
        inner: MessageStream = self._one_call or stream
        self._stops = StopText(inner, stops, trimmed=not request.raw) if stops else None
        self._stream: MessageStream = self._stops or inner
        self._turn_id = request.turn_id
        self._prefill = request.prefill
        self._delta: MessageDelta = NOTHING
        self._opening = self._stream.feed(prefill(request)) if request.prefill else NOTHING
        self._calls_given = 0
        if request.completion_ids:
            # Written by an earlier dispatch: parse it for the state, drop the delta.
            written = joined(self._opening, self._stream.feed(request.completion_ids))
            self._opening = NOTHING
            self._calls_given = len(written.tool_calls)

    @property
    def may_end(self) -> bool:
        """True if the text may end the turn: by a stop string or by the only call allowed."""
        return self._stops is not None or self._one_call is not None

    def feed(self, ids: bytes) -> int | None:
        """Parse new tokens; return the completion's length if its text has ended it, or None."""
        if ids:
            self._add_delta(self._stream.feed(ids))
        watched = [each for each in (self._stops, self._one_call) if each is not None]
        ends = [each.found_after for each in watched if each.found_after is not None]
        return max(0, min(ends) - self._prefill) if ends else None

    def finish(self) -> ParsedMessage:
        """Return the whole message; its count of thinking tokens leaves out the prefill."""
        self._add_delta(self._stream.finish())
        message = self._stream.message
        if message.reasoning_tokens is None:
            return message
        return replace(message, reasoning_tokens=max(0, message.reasoning_tokens - self._prefill))

    @property
    def stop_sequence(self) -> str | None:
        """The stop string that ended the message, or None."""
        return None if self._stops is None else self._stops.stop_string

    def take_delta(self) -> bytes | None:
        """Return the addition since the last call, as JSON, or None if there is none."""
        delta = _delta_json(self._delta, self._turn_id, self._calls_given)
        self._calls_given += len(self._delta.tool_calls)
        self._delta = NOTHING
        return delta

    def _add_delta(self, new: MessageDelta) -> None:
        # The prefill's text goes with the first token, so that only one dispatch writes it.
        if self._opening:
            new = joined(self._opening, new)
            self._opening = NOTHING
        self._delta = joined(self._delta, new)


def template_prompt(request: GenerateTurn) -> bytes:
    """Return the prompt without its prefill."""
    return request.prompt_ids[: len(request.prompt_ids) - TOKEN_BYTES * request.prefill]


def prefill(request: GenerateTurn) -> bytes:
    """Return the prefill: the prompt's end, with which the completion begins."""
    return request.prompt_ids[len(request.prompt_ids) - TOKEN_BYTES * request.prefill :]


def message_json(message: ParsedMessage, turn_id: str) -> bytes:
    """Return the whole assistant message; `content` is null if there are only tool calls."""
    fields: dict[str, object] = {"role": "assistant", "content": message.content}
    if message.reasoning:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["content"] = message.content or None
        fields["tool_calls"] = [
            {"type": "function", **_call(call, turn_id, number)}
            for number, call in enumerate(message.tool_calls)
        ]
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)


def _delta_json(delta: MessageDelta, turn_id: str, first_call: int) -> bytes | None:
    """Return the addition to the message, or None if it is empty.

    `first_call`: how many tool calls the turn had before it.
    """
    if not delta:
        return None
    fields: dict[str, object] = {}
    if delta.content:
        fields["content"] = delta.content
    if delta.reasoning:
        fields["reasoning_content"] = delta.reasoning
    if delta.tool_calls:
        fields["tool_calls"] = [
            {"index": number, **_call(call, turn_id, number)}
            for number, call in enumerate(delta.tool_calls, first_call)
        ]
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)


def _call(call: ToolCall, turn_id: str, number: int) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": tool_call_id(turn_id, number), "function": function}
